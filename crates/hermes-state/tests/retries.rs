//! Processes that are killed in the middle of a batch, and others that write it again under its client keys: each message
//! is stored once, whoever wrote it, and its id never changes.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "processes report")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use hermes_state::{LockKind, MessageQuery, NewMessage, NewSession, SearchOptions, SessionDb};
use support::{must_succeed, play, role};

const WORDS: [&str; 5] = ["alder", "birch", "cedar", "damson", "elm"];

fn batch(numbers: std::ops::Range<usize>) -> Vec<NewMessage> {
    numbers.map(|n| NewMessage::new("user", WORDS[n]).client_key(format!("k{}", n + 1))).collect()
}

fn say(ids: &[i64]) {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    // The harness has printed the name of its test on the same line.
    println!("\nids {};", ids.join(" "));
    std::io::stdout().flush().expect("the test listens");
}

/// What a process plays.
fn act(part: &str, store: &Path) {
    let db = SessionDb::open(store).expect("opens");
    let append = |numbers| db.append_messages("s", batch(numbers)).expect("appends").stored().expect("stored");
    match part {
        "two-and-wait" => {
            say(&append(0..2));
            std::thread::sleep(Duration::from_secs(600));
        }
        "five" => say(&append(0..5)),
        "last-three" => say(&append(2..5)),
        // Killed somewhere on the way through: batches of five under keys that all these processes use.
        _ => {
            for round in 0.. {
                let messages: Vec<_> = (0..5)
                    .map(|n| NewMessage::new("user", format!("r{round}n{n}")).client_key(format!("r{round}n{n}")))
                    .collect();
                // Half of a batch first, so that batches are found half stored.
                db.append_messages("s", messages[..2].to_vec()).expect("appends");
                say(&[&[round], &*db.append_messages("s", messages).expect("appends").stored().expect("stored")]
                    .concat());
            }
        }
    }
}

fn ids_of(line: &str) -> Option<Vec<i64>> {
    let ids = line.trim().strip_prefix("ids ")?.strip_suffix(';')?;
    ids.split(' ').map(|id| id.parse().ok()).collect()
}

fn started(test: &str, part: &str, store: &Path) -> Child {
    play(test, part, store, LockKind::PrivateTable).stdout(Stdio::piped()).spawn().expect("runs")
}

fn answers(child: &mut Child) -> impl Iterator<Item = Vec<i64>> + use<> {
    BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok).filter_map(|line| ids_of(&line))
}

/// What a process answered that has ended well.
fn outcome(child: Child) -> Vec<i64> {
    let output = child.wait_with_output().expect("runs");
    must_succeed(&output);
    String::from_utf8_lossy(&output.stdout).lines().find_map(ids_of).expect("ids")
}

fn with_session(store: &Path) -> SessionDb {
    let db = SessionDb::open(store).expect("opens");
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    db
}

fn counter(db: &SessionDb) -> i64 {
    db.session("s").expect("reads").expect("is there").message_count()
}

fn a_half_stored_batch(test: &str, store: &Path) {
    let db = with_session(store);
    let mut first = started(test, "two-and-wait", store);
    let two = answers(&mut first).next().expect("an answer");
    first.kill().expect("killed");
    first.wait().expect("reaped");
    let five = outcome(started(test, "five", store));
    assert_eq!((five.len(), &five[..2]), (5, &two[..]));
    let (third, fourth) = (started(test, "last-three", store), started(test, "five", store));
    assert_eq!((outcome(third), outcome(fourth)), (five[2..].to_vec(), five));
    assert_eq!((db.message_count(Some("s")).expect("counts"), counter(&db)), (5, 5));
    assert_eq!(db.search_messages("birch", &SearchOptions::default()).expect("searches").len(), 1);
}

/// How many processes are killed, one after the other, while two others write the same.
const KILLS: u64 = 12;

fn killed_writers(test: &str, store: &Path) {
    let db = with_session(store);
    let mut told: Vec<Vec<i64>> = Vec::new();
    for kill in 0..KILLS {
        let mut writers: Vec<Child> = (0..2).map(|_| started(test, "storm", store)).collect();
        let readers: Vec<_> = writers.iter_mut().map(answers).collect();
        let listeners: Vec<_> =
            readers.into_iter().map(|reader| std::thread::spawn(move || reader.collect::<Vec<Vec<i64>>>())).collect();
        std::thread::sleep(Duration::from_millis(250 + kill * 37));
        for writer in &mut writers {
            writer.kill().expect("killed");
            writer.wait().expect("reaped");
        }
        for listener in listeners {
            told.extend(listener.join().expect("listened"));
        }
    }
    let rounds = told.iter().map(|answer| answer[0]).max().unwrap_or_default();
    assert!(rounds > 5 && told.len() > 20, "no storm: {rounds} rounds, {} answers", told.len());
    let rows = db.messages("s", &MessageQuery::default()).expect("reads");
    assert_eq!(usize::try_from(counter(&db)), Ok(rows.len()));
    let mut ids = std::collections::HashMap::new();
    for row in &rows {
        let key = row.client_key().expect("a key").to_owned();
        assert_eq!(row.content().text(), Some(key.as_str()));
        assert_eq!(ids.insert(key, row.id()), None, "stored twice");
    }
    for answer in &told {
        let of_round: Vec<i64> = (0..5).map(|n| ids[&format!("r{}n{n}", answer[0])]).collect();
        assert_eq!(answer[1..], of_round, "every process was told the same ids");
    }
}

fn on_a_file(play: impl Fn(&Path)) {
    let folder = tempfile::tempdir().expect("a folder");
    play(&folder.path().join("state.db"));
}

#[cfg(feature = "postgres")]
fn on_a_server(play: impl Fn(&Path)) {
    let Some(server) = hermes_state_testkit::shared() else { return };
    let space = server.fresh();
    play(Path::new(&space.url()));
}

macro_rules! with_processes {
    ($($name:ident: $scene:ident $world:ident;)*) => {$(
        #[test]
        fn $name() {
            match role() {
                Some((part, store)) => act(&part, &store),
                None => $world(|store| $scene(stringify!($name), store)),
            }
        }
    )*};
}
with_processes! {
    a_half_stored_batch_is_completed_by_other_processes: a_half_stored_batch on_a_file;
    killed_writers_of_the_same_messages_store_each_once: killed_writers on_a_file;
}
#[cfg(feature = "postgres")]
with_processes! {
    a_half_stored_batch_on_a_server_is_completed_by_other_processes: a_half_stored_batch on_a_server;
    killed_writers_of_the_same_messages_on_a_server_store_each_once: killed_writers on_a_server;
}
