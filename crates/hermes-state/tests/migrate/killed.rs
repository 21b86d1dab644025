//! Runs that are killed at any moment and run again.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use hermes_state::{LockKind, SessionDb};
use hermes_state_testkit::shared;

use crate::support::{play, role};
use crate::world::{World, behind_its_back, copy, dump, must_be_whole};

const TO: &str = "HERMES_STATE_TEST_MIGRATE_TO";

/// Kills copying processes until one gets to its end; later ones are given more time.
fn storm(name: &str, from: &Path, to: &str) -> u32 {
    let (mut kills, mut dice) = (0, u64::from(std::process::id()) | 1);
    loop {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        let mut child = play(&format!("killed::{name}"), "copier", from, LockKind::PrivateTable)
            .env(TO, to)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs");
        let until = Instant::now() + Duration::from_millis(40 + dice % 400 + u64::from(kills) * 40);
        let ended = loop {
            if let Some(status) = child.try_wait().expect("waits") {
                break Some(status);
            }
            if Instant::now() >= until {
                break None;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        if let Some(status) = ended {
            let output = child.wait_with_output().expect("waits");
            assert!(status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            return kills;
        }
        child.kill().expect("kills");
        child.wait().expect("waits");
        kills += 1;
    }
}

fn copier() -> bool {
    let Some((_, from)) = role() else { return false };
    let to = std::env::var_os(TO).expect("a target");
    assert!(copy(from, Path::new(&to)).expect("copies").is_equal());
    true
}

#[test]
fn killed_runs_into_a_file_end_with_the_same_file() {
    if copier() {
        return;
    }
    let world = World::new();
    let (from, to) = (world.awkward("from.db"), world.path("to.db"));
    let kills = storm("killed_runs_into_a_file_end_with_the_same_file", &from, to.to_str().expect("text"));
    println!("{kills} kills");
    assert!(kills > 0, "nothing was killed");
    assert!(dump(&from) == dump(&to), "the copy differs");
    must_be_whole(&to);
}

#[test]
#[cfg(feature = "postgres")]
fn killed_runs_into_a_server_and_back_end_with_the_same_file() {
    if copier() {
        return;
    }
    let Some(server) = shared() else { return };
    let (world, space) = (World::new(), server.fresh());
    let (from, back) = (world.awkward("from.db"), world.path("back.db"));
    let name = "killed_runs_into_a_server_and_back_end_with_the_same_file";
    let there = storm(name, &from, &space.url());
    let home = storm(name, Path::new(&space.url()), back.to_str().expect("text"));
    println!("{there} kills on the way there, {home} on the way back");
    assert!(there > 0 && home > 0, "nothing was killed");
    assert!(dump(&from) == dump(&back), "the copy differs");
    must_be_whole(&back);
}

/// What the source loses while nobody copies is lost in the target too when the run is taken up again.
#[test]
fn a_resumed_run_follows_what_the_source_has_done_meanwhile() {
    let world = World::new();
    let (from, to) = (world.awkward("from.db"), world.path("to.db"));
    copy(&from, &to).expect("copies");
    // As a run leaves it that was killed just before its end.
    let source = SessionDb::open(&from).expect("opens").path().display().to_string();
    let marker = format!(r#"{{"source":{source:?},"merge":false}}"#);
    SessionDb::open(&to).expect("opens").set_meta("unfinished_migration", marker).expect("sets");
    behind_its_back(
        &from,
        "DELETE FROM messages WHERE session_id = 'zz later'; \
             DELETE FROM session_model_usage WHERE session_id = 'zz later'; \
             UPDATE sessions SET parent_session_id = 'plain' WHERE id = 'a'; \
             DELETE FROM sessions WHERE id = 'zz later'; DELETE FROM compression_locks; \
             UPDATE sessions SET title = NULL WHERE id = 'a'; \
             UPDATE sessions SET title = (SELECT 'title 2' || char(0)) WHERE id = 'plain'; \
             UPDATE messages SET content = 'rewritten' WHERE id % 7 = 0",
    );
    let report = copy(&from, &to).expect("resumes");
    assert!(report.resumed && report.is_equal(), "{report:?}");
    assert!(report.tables[0].removed == 1 && report.tables[1].removed == 20, "{report:?}");
    assert!(dump(&from) == dump(&to), "the copy differs");
    must_be_whole(&to);
}
