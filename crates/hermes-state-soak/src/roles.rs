//! What the processes of a soak do until their standard input ends.

use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hermes_state::{
    BackupOptions, CheckDepth, Error, MessageQuery, NewMessage, NewSession, OpenOptions, OptimizeOptions, Patience,
    PruneFilter, SearchOptions, SessionDb, SessionQuery, StepPace,
};

use crate::ledger::{Acknowledged, Told, word};
use crate::resources::Resources;
use crate::strangers;

/// The source of sessions that are there to be pruned.
pub(crate) const PRUNED: &str = "soak-pruned";

/// What every process works with that is asked to rebuild.
pub(crate) const PACE: StepPace = StepPace { rows: 2000, duty_factor: 1.0, min_pause: Duration::from_millis(5) };

/// After how many cycles what a process holds has settled, and how often it is looked at afterwards.
const SETTLED: u64 = 40;
const LOOK: u64 = 20;

pub(crate) fn play(role: &str, name: &str, seed: u64, path: &Path) -> ExitCode {
    fastrand::seed(seed);
    let outcome = match role {
        "patient-writer" => write(path, name, Duration::from_secs(60)),
        "hasty-writer" => write(path, name, Duration::from_millis(150)),
        "reader" => read(path),
        "maintenance" => maintain(path, name),
        "cycle" => cycle(path, name),
        "sit" => strangers::sit_on_the_lock(path, Duration::from_millis(400), || tell(&Told::Begun)),
        "damage" => strangers::damage_an_index(path),
        other => Err(format!("no role {other}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            tell(&Told::Fault(what));
            ExitCode::FAILURE
        }
    }
}

fn tell(told: &Told) {
    let mut out = std::io::stdout().lock();
    // Nobody who listens any more: the parent is gone, and the end of the input follows.
    let _ = writeln!(out, "{}", told.line()).and_then(|()| out.flush());
}

/// Becomes true when standard input ends.
fn dismissed() -> Arc<AtomicBool> {
    let dismissed = Arc::new(AtomicBool::new(false));
    let told = dismissed.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told.store(true, Ordering::Relaxed);
    });
    dismissed
}

fn until_dismissed(mut each: impl FnMut(u64) -> Result<(), String>) -> Result<(), String> {
    let dismissed = dismissed();
    tell(&Told::Begun);
    for n in 0.. {
        if dismissed.load(Ordering::Relaxed) {
            break;
        }
        each(n)?;
    }
    Ok(())
}

/// An error that must not be.
fn fault(doing: &str) -> impl Fn(Error) -> String + '_ {
    move |error| format!("{doing}: {error} ({error:?})")
}

/// Tells what became of a piece of work. That the lock was not to be had in time is an answer; any other error is a fault.
fn account<T>(work: &str, outcome: Result<T, Error>) -> Option<T> {
    let (ended, value) = match outcome {
        Ok(value) => ("done", Some(value)),
        Err(Error::Busy { .. } | Error::InUse { .. }) => ("busy", None),
        Err(error) => {
            tell(&Told::Fault(fault(work)(error)));
            ("failed", None)
        }
    };
    tell(&Told::Did(work.into(), ended.into()));
    value
}

fn same(patience: Duration) -> Patience {
    Patience { transcript: patience, routine: patience }
}

fn append(db: &SessionDb, session: &str, writer: &str, number: u64, parts: usize) -> Result<(), String> {
    let filler = "filler ".repeat(fastrand::usize(..60));
    let messages = (0..parts)
        .map(|part| NewMessage::new("user", format!("{} harbour {filler}", word(writer, number, part, parts))))
        .collect();
    // An append is stored or spooled, whoever is in the way.
    let answer = db.append_messages(session, messages).map_err(fault("an append failed"))?;
    let (session, writer) = (session.to_owned(), writer.to_owned());
    tell(&Told::Acknowledged(Acknowledged { spooled: answer.is_spooled(), session, writer, number, parts }));
    Ok(())
}

/// Appends to a session that it shares and to one of its slot, single messages and batches.
fn write(path: &Path, name: &str, patience: Duration) -> Result<(), String> {
    let open = OpenOptions::new().patience(same(patience));
    // Opening waits for the lock only where something has to be made, which another process may be doing.
    let db = open.open(path).map_err(fault("opening for writing"))?;
    let slot: u64 = name.trim_start_matches('w').split('g').next().and_then(|slot| slot.parse().ok()).unwrap_or(0);
    until_dismissed(|number| {
        let session = if fastrand::bool() { format!("shared{}", slot % 3) } else { format!("own{slot}") };
        append(&db, &session, name, number, if number % 5 == 0 { 3 } else { 1 })?;
        std::thread::sleep(Duration::from_millis(fastrand::u64(2..40)));
        Ok(())
    })?;
    db.close().map_err(fault("closing after writing"))
}

fn read(path: &Path) -> Result<(), String> {
    until_dismissed(|n| {
        let db = match if n % 2 == 0 { SessionDb::open(path) } else { SessionDb::open_read_only(path) } {
            Err(Error::Busy { .. }) => {
                tell(&Told::Did("open".into(), "busy".into()));
                return Ok(());
            }
            opened => opened.map_err(fault("opening for reading"))?,
        };
        for _ in 0..10 {
            look(&db);
            std::thread::sleep(Duration::from_millis(fastrand::u64(5..60)));
        }
        db.close().map_err(fault("closing after reading"))
    })
}

fn look(db: &SessionDb) {
    let session =
        if fastrand::bool() { format!("own{}", fastrand::u64(..8)) } else { format!("shared{}", fastrand::u64(..3)) };
    match fastrand::u8(..5) {
        0 => {
            let query = if fastrand::bool() { "harbour" } else { "n7p0of1" };
            account("search", db.search_messages(query, &SearchOptions { limit: 20, ..SearchOptions::default() }));
        }
        1 => {
            account("list", db.list_sessions(&SessionQuery { order_by_last_active: true, ..SessionQuery::default() }));
        }
        2 => {
            let shown = account("show", db.recent_messages(session.as_str(), 50)).unwrap_or_default();
            if !shown.is_sorted_by_key(hermes_state::Message::id) {
                tell(&Told::Fault(format!("messages of {session} were shown out of order")));
            }
        }
        3 => {
            let count = |db: &SessionDb| {
                let Some(export) = db.export_session(session.as_str())? else { return Ok(None) };
                let promised = export.message_count();
                export.collect::<Result<Vec<_>, _>>().map(|messages| Some((promised, messages.len())))
            };
            match account("export", count(db)) {
                Some(Some((promised, exported))) if promised != exported => tell(&Told::Fault(format!(
                    "an export of {session} has {exported} messages, and promised {promised}"
                ))),
                Some(None) => tell(&Told::Fault(format!("the session {session} is not there"))),
                _ => {}
            }
        }
        _ => {
            account("status", db.status().and_then(|_| db.who()));
        }
    }
}

/// Every kind of upkeep, in an order that the seed gives.
fn maintain(path: &Path, name: &str) -> Result<(), String> {
    let open = OpenOptions::new().patience(same(Duration::from_secs(20)));
    let db = open.open(path).map_err(fault("opening for upkeep"))?;
    let backup = path.with_extension("backup.db");
    let storage = OptimizeOptions { vacuum: false, pace: PACE };
    let jobs =
        ["prune", "prune", "rebuild", "storage", "merge", "space", "checkpoint", "backup", "check", "replay", "vacuum"];
    let mut deck = Vec::new();
    until_dismissed(|n| {
        if deck.is_empty() {
            deck = jobs.to_vec();
            fastrand::shuffle(&mut deck);
        }
        let job = deck.pop().unwrap_or_default();
        match job {
            "prune" => {
                account("prune", prune(&db, &format!("old-{name}-{n}")));
            }
            "rebuild" => {
                account(job, db.rebuild_fts(PACE));
            }
            "storage" => {
                account(job, db.optimize_fts_storage(&storage, &mut |_| Ok(())));
            }
            "merge" => {
                account(job, db.optimize_fts_with(&mut |_| ControlFlow::Continue(())));
            }
            "space" => {
                account(job, db.release_space());
            }
            "checkpoint" => {
                account(job, db.checkpoint());
            }
            "backup" => {
                account(job, db.backup(&backup, &BackupOptions::default(), &mut |_| Ok(())));
            }
            "check" => {
                let health = account(job, SessionDb::check_file(path, CheckDepth::Quick));
                if let Some(health) = health.filter(|health| !health.unreadable.is_empty()) {
                    tell(&Told::Fault(format!("a check found tables unreadable: {health:?}")));
                }
            }
            "vacuum" => {
                account(job, db.vacuum());
            }
            _ => {
                account(job, db.replay_spool(false));
            }
        }
        std::thread::sleep(Duration::from_millis(fastrand::u64(20..200)));
        Ok(())
    })?;
    db.close().map_err(fault("closing after upkeep"))
}

/// Makes some sessions of its own and has them pruned, with what others of its kind have left.
fn prune(db: &SessionDb, name: &str) -> Result<usize, Error> {
    for session in 0..5 {
        let id = format!("{name}-{session}");
        db.create_session(NewSession::new(id.as_str(), PRUNED))?;
        let messages = (0..40).map(|n| NewMessage::new("user", format!("gone{n} harbour {}", "old ".repeat(50))));
        // What is spooled for a session that is deleted meanwhile is rightly gone with it, and so is of no account.
        db.append_messages(id.as_str(), messages.collect())?;
        db.end_session(id.as_str(), "done")?;
    }
    db.prune_sessions(&PruneFilter { source: Some(PRUNED.into()), ..PruneFilter::default() }, None)
}

/// Opens, writes, searches and closes all the time, and tells what it holds when everything is closed.
fn cycle(path: &Path, name: &str) -> Result<(), String> {
    let mut cycles = 0;
    let hold = || Resources::of_this_process().map(|held| tell(&Told::Holds(held)));
    until_dismissed(|number| {
        let db = SessionDb::open(path).map_err(fault("opening again"))?;
        append(&db, "cycle", name, number, 1)?;
        let own = word(name, number, 0, 1);
        // A word of one message only: what many hits take in memory grows with the store.
        account("search", db.search_messages(&own, &SearchOptions { limit: 20, ..SearchOptions::default() }));
        let messages = db.messages("cycle", &MessageQuery { limit: Some(20), ..MessageQuery::default() });
        account("show", messages);
        db.close().map_err(fault("closing again"))?;
        cycles = number + 1;
        if cycles >= SETTLED && (cycles - SETTLED).is_multiple_of(LOOK) {
            hold();
        }
        std::thread::sleep(Duration::from_millis(fastrand::u64(5..50)));
        Ok(())
    })?;
    hold();
    Ok(())
}
