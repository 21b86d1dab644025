//! Who plays in a soak, and what is done to them: faults come from a shuffled deck, so that each comes before any comes again.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fastrand::Rng;
use hermes_state::{NewSession, SessionDb};

use crate::cast::Player;
use crate::ledger::{Heard, Told};
use crate::strangers;

/// Writers; the second half of them has little patience, and spools.
const WRITERS: usize = 8;

/// How long somebody is kept from going on: longer than the hasty are patient.
const STOPPED: Duration = Duration::from_millis(900);

const FAULTS: [&str; 10] = [
    "kill-writer",
    "kill-writer",
    "kill-hasty-writer-while-the-lock-is-held",
    "kill-maintenance",
    "kill-maintenance",
    "kill-reader",
    "kill-older-release",
    "stop-writer",
    "stop-holder",
    "damage-index",
];

/// A part, played by one process after another.
struct Part {
    role: &'static str,
    name: String,
    generation: usize,
    player: Player,
}

struct Stage<'a> {
    path: &'a Path,
    rng: Rng,
    heard: Arc<Mutex<Heard>>,
    parts: Vec<Part>,
}

impl Stage<'_> {
    fn start(&mut self, role: &'static str, name: &str, generation: usize) -> Result<Player, String> {
        let name = format!("{name}g{generation}");
        if role == "older-release" {
            return Player::start(&name, strangers::older_release(&name, self.path), &self.heard);
        }
        Player::role(role, &name, self.rng.u64(..), self.path, &self.heard)
    }

    fn cast(&mut self, role: &'static str, name: &str) -> Result<(), String> {
        let player = self.start(role, name, 0)?;
        self.parts.push(Part { role, name: name.to_owned(), generation: 0, player });
        Ok(())
    }

    /// One of those in a role, if there are any.
    fn one_of(&mut self, role: &str) -> Option<usize> {
        let all: Vec<usize> = (0..self.parts.len()).filter(|at| self.parts[*at].role.ends_with(role)).collect();
        self.rng.choice(all)
    }

    fn kill(&mut self, at: usize) -> Result<(), String> {
        let Part { role, name, generation, .. } = &self.parts[at];
        let (role, name, generation) = (*role, name.clone(), generation + 1);
        let player = self.start(role, &name, generation)?;
        self.parts[at].generation = generation;
        std::mem::replace(&mut self.parts[at].player, player).kill();
        Ok(())
    }

    fn perform(&mut self, fault: &str) -> Result<(), String> {
        match fault {
            "stop-writer" => {
                let Some(at) = self.one_of("writer") else { return Ok(()) };
                self.parts[at].player.stop();
                std::thread::sleep(STOPPED);
                self.parts[at].player.go_on();
            }
            "stop-holder" | "kill-hasty-writer-while-the-lock-is-held" => {
                let holder = Player::role("sit", "holder", 0, self.path, &self.heard)?;
                if holder.begins(Duration::from_secs(60)) {
                    holder.stop();
                    std::thread::sleep(STOPPED);
                    if fault != "stop-holder"
                        && let Some(at) = self.one_of("hasty-writer")
                    {
                        self.kill(at)?;
                    }
                    holder.go_on();
                }
                holder.end();
            }
            "damage-index" => Player::role("damage", "damager", self.rng.u64(..), self.path, &self.heard)?.end(),
            kill => {
                let role = kill.trim_start_matches("kill-");
                if let Some(at) = self.one_of(role) {
                    self.kill(at)?;
                }
            }
        }
        self.hear(Told::Did(fault.into(), "done".into()));
        Ok(())
    }

    fn hear(&self, told: Told) {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).hear("the soak", told);
    }
}

/// Has them all play for so long; what was heard of them.
pub(crate) fn direct(path: &Path, seed: u64, time: Duration) -> Result<Heard, String> {
    prepare(path).map_err(|error| error.to_string())?;
    let heard = Arc::new(Mutex::new(Heard::default()));
    let mut stage = Stage { path, rng: Rng::with_seed(seed), heard: heard.clone(), parts: Vec::new() };
    for slot in 0..WRITERS {
        let role = if slot < WRITERS / 2 { "patient-writer" } else { "hasty-writer" };
        stage.cast(role, &format!("w{slot}"))?;
    }
    for n in 0..2 {
        stage.cast("reader", &format!("r{n}"))?;
        stage.cast("maintenance", &format!("m{n}"))?;
    }
    stage.cast("cycle", "c")?;
    if strangers::python_is_there() {
        stage.cast("older-release", "py")?;
    } else {
        stage.hear(Told::Did("older_release".into(), "left-out-without-python3".into()));
    }
    let began = Instant::now();
    let mut deck: Vec<&str> = Vec::new();
    while began.elapsed() < time {
        std::thread::sleep(Duration::from_millis(stage.rng.u64(100..1200)));
        if stage.parts.iter_mut().any(|part| part.player.notice_end()) {
            break;
        }
        if deck.is_empty() {
            deck = FAULTS.to_vec();
            stage.rng.shuffle(&mut deck);
        }
        stage.perform(deck.pop().unwrap_or_default())?;
    }
    for part in &mut stage.parts {
        part.player.dismiss();
    }
    stage.parts.into_iter().for_each(|part| part.player.end());
    let heard = std::mem::take(&mut *heard.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(heard)
}

/// A store with the sessions that they write to.
fn prepare(path: &Path) -> hermes_state::Result<()> {
    let db = SessionDb::open(path)?;
    let own = (0..WRITERS).map(|slot| format!("own{slot}"));
    let shared = (0..3).map(|n| format!("shared{n}"));
    for session in own.chain(shared).chain(["cycle".into(), "older".into()]) {
        db.create_session(NewSession::new(session.as_str(), "cli"))?;
    }
    db.close()
}
