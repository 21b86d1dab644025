//! What is left when all have ended: the spool is stored, indexes are filled, and the rows are held against what was heard.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use hermes_state::{OptimizeOptions, SearchOptions, SessionDb};
use rusqlite::Connection;

use crate::ledger::{Heard, read_word};
use crate::roles::{PACE, PRUNED};

/// Of how many of a kind of violation the names are told.
const NAMED: usize = 10;

/// Stores what is spooled, fills the search indexes and asks them; what was violated.
pub(crate) fn settle(path: &Path, heard: &Heard) -> Vec<String> {
    let mut violations = Vec::new();
    let settled = (|| {
        let db = SessionDb::open(path)?;
        let waiting = db.spool_status()?;
        let replayed = db.replay_spool(false)?;
        println!(
            "spool: {} writes left for the last replay, which stored {}",
            waiting.map_or(0, |spool| spool.writes),
            replayed.stored
        );
        let spool = db.spool_status()?;
        if let Some(spool) = spool.filter(|spool| spool.writes > 0 || spool.refused > 0) {
            violations.push(format!("the spool is not empty: {spool:?}"));
        }
        db.rebuild_fts(PACE)?;
        db.optimize_fts_storage(&OptimizeOptions { vacuum: false, pace: PACE }, &mut |_| Ok(()))?;
        let step = heard.acknowledged.len() / 100 + 1;
        for one in heard.acknowledged.iter().step_by(step) {
            for word in one.words() {
                let hits = db.search_messages(&word, &SearchOptions::default())?;
                if hits.degraded || hits.len() != 1 {
                    violations.push(format!("{} hits of {word}, degraded: {}", hits.len(), hits.degraded));
                }
            }
        }
        db.close()
    })();
    if let Err(error) = settled {
        violations.push(format!("the store cannot be settled: {error} ({error:?})"));
    }
    violations
}

/// Looks at the file, which nobody has open; what was violated.
pub(crate) fn examine(path: &Path, heard: &Heard) -> Result<Vec<String>, String> {
    let words = |error: rusqlite::Error| error.to_string();
    let connection = Connection::open(path).map_err(words)?;
    let mut violations = Vec::new();
    let ask = |sql: &str| -> rusqlite::Result<Vec<String>> {
        connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
    };
    let integrity = ask("PRAGMA integrity_check").map_err(words)?;
    if integrity != ["ok"] {
        violations.push(format!("integrity: {}", integrity.join("; ")));
    }
    let strays = ask("SELECT \"table\" FROM pragma_foreign_key_check").map_err(words)?;
    if !strays.is_empty() {
        violations.push(format!("rows without what they belong to, in {strays:?}"));
    }
    let wrong = ask(
        "SELECT id FROM sessions s WHERE message_count <> (SELECT COUNT(*) FROM messages m WHERE m.session_id = s.id)",
    )
    .map_err(words)?;
    if !wrong.is_empty() {
        violations.push(format!("counters differ from rows: {wrong:?}"));
    }
    for index in ["messages_fts", "messages_fts_trigram"] {
        let sql = format!("INSERT INTO {index}({index}, rank) VALUES ('integrity-check', 1)");
        if let Err(error) = connection.execute_batch(&sql) {
            violations.push(format!("{index} is not whole: {error}"));
        }
    }
    let sql = "SELECT m.session_id, substr(content, 1, instr(content || ' ', ' ') - 1) FROM messages m
               JOIN sessions s ON s.id = m.session_id WHERE s.source <> ?1 ORDER BY m.id";
    let rows: Vec<(String, String)> = connection
        .prepare(sql)
        .and_then(|mut rows| rows.query_map([PRUNED], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())
        .map_err(words)?;
    violations.extend(compare(&rows, heard));
    summarise(&rows, heard);
    violations.extend(held(heard));
    Ok(violations)
}

/// Holds the rows, each a session and a first word in the order of ids, against what was acknowledged.
fn compare(rows: &[(String, String)], heard: &Heard) -> Vec<String> {
    let mut times: HashMap<&str, (&str, usize)> = HashMap::new();
    let mut newest: HashMap<(&str, &str), (u64, usize)> = HashMap::new();
    let mut batches: BTreeMap<(&str, u64), (usize, usize)> = BTreeMap::new();
    let (mut foreign, mut disordered, mut lost, mut misplaced) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (session, word) in rows {
        times.entry(word).or_insert((session, 0)).1 += 1;
        let Some((writer, number, part, parts)) = read_word(word) else {
            foreign.push(word.clone());
            continue;
        };
        let before = newest.insert((session, writer), (number, part));
        if before.is_some_and(|before| before > (number, part)) {
            disordered.push(format!("{word} in {session} after {before:?}"));
        }
        batches.entry((writer, number)).or_insert((0, parts)).0 += 1;
    }
    for one in &heard.acknowledged {
        for word in one.words() {
            match times.get(word.as_str()) {
                None => lost.push(format!("{word} ({})", if one.spooled { "spooled" } else { "stored" })),
                Some((session, _)) if *session != one.session => misplaced.push(word),
                Some(_) => {}
            }
        }
    }
    let doubled = times.iter().filter(|(_, (_, times))| *times > 1).map(|(word, _)| (*word).to_owned()).collect();
    let torn =
        batches.iter().filter(|(_, (there, parts))| there < parts).map(|(batch, _)| format!("{batch:?}")).collect();
    [
        ("lost", lost),
        ("doubled", doubled),
        ("out of order", disordered),
        ("in another session", misplaced),
        ("batches in part", torn),
        ("nobody's", foreign),
    ]
    .into_iter()
    .filter(|(_, which)| !which.is_empty())
    .map(|(what, which)| format!("{} {what}: {}", which.len(), which[..which.len().min(NAMED)].join(", ")))
    .collect()
}

/// What the process that opened and closed all the time holds at the end, beside the start.
fn held(heard: &Heard) -> Vec<String> {
    let (Some(first), Some(last)) = (heard.held.first(), heard.held.last()) else {
        return vec!["nobody told what a process holds".into()];
    };
    let most = heard.held.iter().map(|held| held.kibibytes).max().unwrap_or_default();
    println!(
        "a process that opened and closed all the time: {} descriptors at first, {} at the end; {} and {} KiB of memory, {} at most",
        first.descriptors, last.descriptors, first.kibibytes, last.kibibytes, most
    );
    last.exceed(*first)
}

fn summarise(rows: &[(String, String)], heard: &Heard) {
    let parts = |spooled| -> usize {
        heard.acknowledged.iter().filter(|one| one.spooled == spooled).map(|one| one.parts).sum()
    };
    println!("messages: {} acknowledged as stored, {} as spooled; {} are there", parts(false), parts(true), rows.len());
    for ((what, outcome), times) in &heard.did {
        println!("  {what}: {outcome} {times}");
    }
}

#[cfg(test)]
mod tests {
    use hermes_state::{NewMessage, NewSession};

    use super::*;
    use crate::ledger::Acknowledged;
    use crate::resources::Resources;

    fn acknowledged(writer: &str, number: u64, parts: usize) -> Acknowledged {
        Acknowledged { spooled: false, session: "s".into(), writer: writer.into(), number, parts }
    }

    fn heard() -> Heard {
        Heard {
            acknowledged: vec![acknowledged("w1g0", 0, 2), acknowledged("w1g0", 1, 1)],
            held: vec![Resources { descriptors: 5, kibibytes: 5000 }; 2],
            ..Heard::default()
        }
    }

    fn found(words: &[&str]) -> String {
        let rows: Vec<_> = words.iter().map(|word| ("s".to_owned(), (*word).to_owned())).collect();
        compare(&rows, &heard()).join("\n")
    }

    #[test]
    fn each_kind_of_loss_is_told_and_what_was_not_acknowledged_may_be_there() {
        assert_eq!(found(&["w1g0n0p0of2", "w1g0n0p1of2", "w1g0n1p0of1", "w2g0n0p0of1"]), "");
        assert_eq!(found(&["w1g0n0p0of2", "w1g0n0p1of2"]), "1 lost: w1g0n1p0of1 (stored)");
        let twice = found(&["w1g0n0p0of2", "w1g0n0p1of2", "w1g0n1p0of1", "w1g0n1p0of1"]);
        assert_eq!(twice, "1 doubled: w1g0n1p0of1");
        assert!(found(&["w1g0n1p0of1", "w1g0n0p0of2", "w1g0n0p1of2"]).starts_with("1 out of order"));
        assert!(found(&["w1g0n0p0of2", "w1g0n0p1of2", "w1g0n1p0of1", "w1g0n2p0of2"]).starts_with("1 batches in part"));
        let elsewhere = [("s", "w1g0n0p0of2"), ("s", "w1g0n0p1of2"), ("t", "w1g0n1p0of1")];
        let elsewhere = elsewhere.map(|(session, word)| (session.to_owned(), word.to_owned()));
        assert_eq!(compare(&elsewhere, &heard()), ["1 in another session: w1g0n1p0of1"]);
    }

    #[test]
    fn a_store_is_well_until_a_counter_or_an_index_is_touched() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state.db");
        let db = SessionDb::open(&path).expect("opens");
        db.create_session(NewSession::new("s", "cli")).expect("creates");
        for one in heard().acknowledged {
            let messages = one.words().map(|word| NewMessage::new("user", word)).collect();
            db.append_messages("s", messages).expect("appends");
        }
        db.close().expect("closes");
        assert_eq!(settle(&path, &heard()), [""; 0]);
        assert_eq!(examine(&path, &heard()).expect("examines"), [""; 0]);
        let connection = Connection::open(&path).expect("opens");
        connection.execute_batch("UPDATE sessions SET message_count = 7").expect("writes");
        connection
            .execute_batch("DROP TRIGGER messages_fts_delete; DELETE FROM messages WHERE id = 3")
            .expect("writes");
        drop(connection);
        let violations = examine(&path, &heard()).expect("examines").join("\n");
        for word in ["counters differ", "messages_fts is not whole", "1 lost"] {
            assert!(violations.contains(word), "{violations}");
        }
    }
}
