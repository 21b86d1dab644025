//! smoke
use hermes_state::*;
use std::time::Instant;
#[test]
fn smoke() {
    let dir = tempfile::tempdir().unwrap();
    let p = dir.path().join("x/state.db");
    let db = SessionDb::open(&p).unwrap();
    db.create_session(NewSession::new("s1", "cli")).unwrap();
    let t = Instant::now();
    for i in 0..300 {
        db.append_message("s1", NewMessage::new("user", format!("hello {i} {}", "some more words here ".repeat(40))))
            .unwrap();
    }
    println!("append {:?}", t.elapsed() / 300);
    let db = std::sync::Arc::new(db);
    let t = Instant::now();
    std::thread::scope(|s| {
        for k in 0..16 {
            let db = db.clone();
            s.spawn(move || {
                for i in 0..100 {
                    db.append_message(
                        "s1",
                        NewMessage::new("user", format!("hello {k} {i} {}", "some more words here ".repeat(40))),
                    )
                    .unwrap();
                }
            });
        }
    });
    println!("16 threads {:?} per", t.elapsed() / 1600);
    assert_eq!(db.message_count(Some("s1")).unwrap(), 1900);
    println!("{:?}", db.list_sessions(&SessionQuery::default()).unwrap());
    let c = std::process::Command::new("python3").arg("-c").arg(format!("
import sqlite3,time
c=sqlite3.connect('{0}',isolation_level=None); c.execute('begin immediate'); print('held',flush=True); time.sleep(1.5); c.execute('commit'); print(time.time())", p.display())).stdout(std::process::Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    db.set_patience(Patience {
        transcript: std::time::Duration::from_millis(200),
        routine: std::time::Duration::from_millis(100),
    });
    println!("{}", db.set_meta("k", "v").unwrap_err());
    db.set_patience(Patience::default());
    db.append_message("s1", NewMessage::new("user", "x")).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    println!("{now} {}", String::from_utf8_lossy(&c.wait_with_output().unwrap().stdout));
    db.close().unwrap();
    println!(
        "{:?}",
        std::fs::read_dir(dir.path().join("x")).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>()
    );
    let t = Instant::now();
    let db = SessionDb::open(&p).unwrap();
    println!("open {:?}", t.elapsed());
    let t = Instant::now();
    for _ in 0..1000 {
        db.session_count(&SessionQuery::default()).unwrap();
    }
    println!("read {:?}", t.elapsed() / 1000);
}
