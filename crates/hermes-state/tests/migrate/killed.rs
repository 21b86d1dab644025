//! Runs that are killed at any moment and run again.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use hermes_state::{LockKind, MigrateOptions, SessionDb, migrate};
use hermes_state_testkit::{Server, shared};

use crate::support::{play, role};
use crate::world::{World, behind_its_back, copy, dump, must_be_whole};

const TO: &str = "HERMES_STATE_TEST_MIGRATE_TO";

/// How often copying is killed in each direction.
const KILLS: usize = 8;

/// What begins a line of a copying process that tells how far it is.
const AT: &str = "at ";

/// Numbers that differ from run to run.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % below.max(1) as u64).expect("small")
    }
}

/// How a copying process ended.
struct Run {
    killed: bool,
    /// How often it told how far it was.
    steps: usize,
    time: Duration,
    said: String,
}

/// Runs a copying process, and kills it when it has told how far it is for this many times and then a while has passed.
/// So kills hit the copying wherever it is, on slow machines and on fast ones.
fn attempt(name: &str, from: &Path, to: &str, kill: Option<(usize, Duration)>) -> Run {
    let started = Instant::now();
    let mut child = play(&format!("killed::{name}"), "copier", from, LockKind::PrivateTable)
        .env(TO, to)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut told = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let mut steps = 0;
    if let Some((after, delay)) = kill {
        if after > 0 {
            steps = told.by_ref().filter(|line| line.starts_with(AT)).take(after).count();
        }
        std::thread::sleep(delay);
        child.kill().expect("kills, or it has ended");
    }
    steps += told.filter(|line| line.starts_with(AT)).count();
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    let status = child.wait().expect("waits");
    let killed = status.code().is_none();
    assert!(killed || status.success() || said.contains("NotEmpty"), "{status}: {said}");
    Run { killed, steps, time: started.elapsed(), said }
}

/// Kills copying processes over and over and lets the last one get to its end. Whoever gets there before it is killed has
/// his copy looked at as well, and the next one begins with a new target. Says how many kills left unfinished targets.
fn storm(name: &str, from: &Path, mut target: impl FnMut() -> String, look: impl Fn(&str)) -> usize {
    let mut to = target();
    let whole = attempt(name, from, &to, None);
    assert!(!whole.killed && whole.said.is_empty() && whole.steps > 10, "{} steps: {}", whole.steps, whole.said);
    look(&to);
    to = target();
    let mut dice = Dice(u64::from(std::process::id()) | 1 << 40);
    let (mut kills, mut unfinished) = (0, 0);
    while kills < KILLS {
        let step = whole.time.as_micros() as usize / whole.steps;
        // The first report comes when both stores are open; before it, opening is hit.
        let kill = (dice.throw(whole.steps), Duration::from_micros(dice.throw(2 * step) as u64));
        let run = attempt(name, from, &to, Some(kill));
        if run.killed {
            kills += 1;
            let left = SessionDb::open_read_only(&to).and_then(|db| db.meta("unfinished_migration"));
            unfinished += usize::from(left.is_ok_and(|marker| marker.is_some()));
            continue;
        }
        // It ended; or the one before had, and was killed on its way out.
        assert!(run.said.is_empty() || kills > 0, "{}", run.said);
        look(&to);
        to = target();
    }
    let last = attempt(name, from, &to, None);
    assert!(!last.killed);
    look(&to);
    println!("{name}: {kills} kills, of which {unfinished} left unfinished targets; {} steps each", whole.steps);
    unfinished
}

fn copier() -> bool {
    let Some((_, from)) = role() else { return false };
    let to = std::env::var_os(TO).expect("a target");
    let (from, to) = (SessionDb::open_read_only(from).expect("opens"), SessionDb::open(Path::new(&to)).expect("opens"));
    let tell = &mut |progress: hermes_state::MigrationProgress| println!("\n{AT}{progress:?}");
    assert!(migrate(&from, &to, &MigrateOptions::new(), tell).expect("copies").is_equal());
    true
}

/// A store that takes a while.
fn much(world: &World) -> std::path::PathBuf {
    let from = world.awkward("from.db");
    behind_its_back(
        &from,
        "WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 2999) \
         INSERT INTO messages (session_id, role, content, timestamp) \
         SELECT 'plain', 'user', 'word' || n || ' of many about the harbour ' || hex(n * 7919), n FROM n",
    );
    from
}

#[test]
fn killed_runs_into_a_file_end_with_the_same_file() {
    if copier() {
        return;
    }
    let world = World::new();
    let from = much(&world);
    let expected = dump(&from);
    let mut number = 0;
    let target = || {
        number += 1;
        world.path(&format!("to{number}.db")).to_str().expect("text").to_owned()
    };
    let look = |to: &str| {
        assert!(dump(Path::new(to)) == expected, "the copy differs");
        must_be_whole(Path::new(to));
    };
    let unfinished = storm("killed_runs_into_a_file_end_with_the_same_file", &from, target, look);
    assert!(unfinished > 1, "no kill hit the copying");
}

#[test]
fn killed_runs_into_a_server_end_with_the_same_file_when_it_comes_back() {
    if copier() {
        return;
    }
    let Some(server) = shared() else { return };
    let world = World::new();
    let from = much(&world);
    let expected = dump(&from);
    let mut spaces = Vec::new();
    let target = || {
        spaces.push(server.fresh());
        spaces[spaces.len() - 1].url()
    };
    let look = |to: &str| {
        let back = World::new();
        assert!(copy(to, back.path("back.db")).expect("copies back").is_equal());
        assert!(dump(&back.path("back.db")) == expected, "the copy differs");
        let found = SessionDb::open_read_only(to).expect("opens").search_messages("word2718", &Default::default());
        assert_eq!(found.expect("searches").len(), 1);
    };
    let name = "killed_runs_into_a_server_end_with_the_same_file_when_it_comes_back";
    assert!(storm(name, &from, target, look) > 1, "no kill hit the copying");
}

#[test]
fn killed_runs_from_a_server_end_with_the_file_that_went_there() {
    if copier() {
        return;
    }
    let Some(server) = shared() else { return };
    let (world, space) = (World::new(), server.fresh());
    let from = much(&world);
    let expected = dump(&from);
    assert!(copy(&from, space.url()).expect("copies there").is_equal());
    let mut number = 0;
    let target = || {
        number += 1;
        world.path(&format!("back{number}.db")).to_str().expect("text").to_owned()
    };
    let look = |to: &str| {
        assert!(dump(Path::new(to)) == expected, "the copy differs");
        must_be_whole(Path::new(to));
    };
    let name = "killed_runs_from_a_server_end_with_the_file_that_went_there";
    assert!(storm(name, Path::new(&space.url()), target, look) > 1, "no kill hit the copying");
}

/// What the source loses while nobody copies is lost in the target too when the run is taken up again.
#[test]
fn a_resumed_run_follows_what_the_source_has_done_meanwhile() {
    let world = World::new();
    let (from, to) = (world.awkward("from.db"), world.path("to.db"));
    copy(&from, &to).expect("copies");
    // As a run leaves it that was killed just before its end.
    let source = SessionDb::open(&from).expect("opens").path().display().to_string();
    let marker = format!(r#"{{"source":{source:?},"merge":false,"highest":777777}}"#);
    SessionDb::open(&to).expect("opens").set_meta("unfinished_migration", marker).expect("sets");
    behind_its_back(
        &from,
        "DELETE FROM messages WHERE session_id = 'zz later'; \
             DELETE FROM session_model_usage WHERE session_id = 'zz later'; \
             UPDATE sessions SET parent_session_id = 'plain' WHERE id = 'a'; \
             DELETE FROM sessions WHERE id = 'zz later'; DELETE FROM compression_locks; \
             UPDATE telegram_dm_topic_bindings SET session_id = 'plain' WHERE session_id = 'a'; \
             UPDATE telegram_dm_topic_bindings SET session_id = 'a' WHERE session_id = '日本'; \
             UPDATE telegram_dm_topic_bindings SET session_id = '日本' WHERE session_id = 'plain'; \
             UPDATE sessions SET title = NULL WHERE id = 'a'; \
             UPDATE sessions SET title = (SELECT 'title 2' || char(0)) WHERE id = 'plain'; \
             UPDATE messages SET content = 'rewritten' WHERE id % 7 = 0; \
             UPDATE messages SET client_key = NULL WHERE client_key = (SELECT 'key 9' || char(0)); \
             UPDATE messages SET client_key = (SELECT 'key 9' || char(0)) WHERE client_key = (SELECT 'key 3' || char(0))",
    );
    let report = copy(&from, &to).expect("resumes");
    assert!(report.resumed && report.is_equal(), "{report:?}");
    assert!(report.tables[0].removed == 1 && report.tables[1].removed == 20, "{report:?}");
    assert!(dump(&from) == dump(&to), "the copy differs");
    must_be_whole(&to);
}

/// The server dies under a run that lives on: it waits, connects anew and ends with the same store. Twice is what one long
/// read bears.
#[test]
fn a_server_that_is_killed_under_a_run_holds_the_same_in_the_end() {
    if shared().is_none() {
        return;
    }
    let server = Server::start().expect("starts");
    let (world, url) = (World::new(), server.url());
    let from = much(&world);
    let expected = dump(&from);
    let mut dice = Dice(u64::from(std::process::id()) | 1 << 41);
    for (source, target) in [(from.clone(), url.clone().into()), (url.into(), world.path("back.db"))] {
        let (source, target) =
            (SessionDb::open_read_only(source).expect("opens"), SessionDb::open(target).expect("opens"));
        let (mut step, mut kills) = (0, 0);
        let mut next = 1 + dice.throw(3);
        let report = migrate(&source, &target, &MigrateOptions::new(), &mut |_| {
            step += 1;
            if step == next && kills < 2 {
                server.kill();
                server.restart();
                kills += 1;
                next = step + 1 + dice.throw(8);
            }
        });
        assert!(report.expect("copies").is_equal());
        assert_eq!(kills, 2);
    }
    assert!(dump(&world.path("back.db")) == expected, "the copy differs");
    must_be_whole(&world.path("back.db"));
}
