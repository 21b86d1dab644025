//! Two SQLite libraries in one process, others beside them, and sudden deaths.

use super::*;

scenarios! {
    two_libraries_in_one_process_lose_nothing, FailsWithout, {
        let db = Db::new(Mode::Wal);
        let Some(neighbour) = Neighbour::open(&db.path()) else {
            // Nothing to load here; as much as can be shown without is shown by `neighbours`.
            assert_eq!(std::env::var(SCENARIO).as_deref(), Ok("layer"), "the control cannot fail");
            return;
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let neighbour = neighbour;
                for n in 0..400 {
                    while neighbour.exec(&format!("INSERT INTO t VALUES ('neighbour', {n})")) != 0 {
                        std::thread::yield_now();
                    }
                }
            });
            scope.spawn(|| {
                for n in 0..400 {
                    let ours = db.open();
                    while is_busy(ours.execute("INSERT INTO t VALUES ('ours', ?)", [n])) {
                        std::thread::yield_now();
                    }
                }
            });
        });
        let mut sibling = db.sibling();
        assert_eq!(sibling.count(), 800);
        assert_eq!(sibling.ok("PRAGMA integrity_check"), "ok");
    }
}
