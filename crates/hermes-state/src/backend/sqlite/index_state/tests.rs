//! A store that mends its indexes by itself, as it does once people have had the time to see it.

use crate::{NewMessage, NewSession, SearchOptions, SessionDb};

#[test]
fn what_damaged_indexes_lack_is_filled_in_behind_later_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let db = SessionDb::open(&path).unwrap();
    db.create_session(NewSession::new("s", "cli")).unwrap();
    let text = |n| NewMessage::new("user", format!("marker{n}q"));
    db.append_messages("s", (0..1200).map(text).collect()).unwrap();
    db.close().unwrap();
    let damage =
        "UPDATE messages_fts_data SET block = zeroblob(64); UPDATE messages_fts_trigram_data SET block = zeroblob(64)";
    rusqlite::Connection::open(&path).unwrap().execute_batch(damage).unwrap();
    let db = SessionDb::open(&path).unwrap();
    let found = |query: &str| {
        let results = db.search_messages(query, &SearchOptions::default()).unwrap();
        (results.len(), results.degraded)
    };
    assert_eq!(found("marker7q"), (1, true));
    assert!(db.search_indexes().unwrap().damaged);
    for n in 0..60 {
        db.append_message("s", NewMessage::new("user", format!("after{n}q"))).unwrap();
    }
    assert_eq!((found("marker7q"), found("after59q")), ((1, false), (1, false)));
    assert!(!db.fts_optimize_available().unwrap(), "nothing is left of the old indexes");
    assert!(!db.search_indexes().unwrap().damaged);
}
