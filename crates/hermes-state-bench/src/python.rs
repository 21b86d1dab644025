//! The Python face: what importing, holding open and replaying cost there.

use std::path::Path;
use std::process::Command;

use crate::report::{Budget, Report, median};
use crate::workload::{message, store};

fn say(interpreter: &str, script: &str, path: &Path) -> f64 {
    let output = Command::new(interpreter).arg("-c").arg(script).arg(path).output().expect("the interpreter runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
}

pub(crate) fn measure(report: &mut Report, interpreter: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, db) = store(folder.path(), "state.db");
    let batch: Vec<_> = (0..4000usize)
        .map(|n| {
            if n.is_multiple_of(5) {
                let calls = serde_json::json!([{"id": format!("k{n}"), "type": "function",
                    "function": {"name": "read_file", "arguments": "{\"path\": \"src/lib.rs\"}"}}]);
                message(n).tool_calls(calls)
            } else {
                message(n)
            }
        })
        .collect();
    db.append_messages("s", batch).expect("appends");
    drop(db);
    let several = |script: &str| median(&(0..9).map(|_| say(interpreter, script, &path)).collect::<Vec<_>>());
    let import =
        several("import time; t = time.perf_counter(); import hermes_state; print((time.perf_counter() - t) * 1e3)");
    let needed = several(
        "import time; t = time.perf_counter(); import sqlite3, pathlib; print((time.perf_counter() - t) * 1e3)",
    );
    report.note("of which sqlite3 and pathlib of the standard library", &format!("{needed:.1} ms"));
    report.figure("Python: import hermes_state, median", import, "ms", &Budget::AtMost(25.0));
    let resident = several(
        "import sys, hermes_state\ndb = hermes_state.SessionDB(sys.argv[1])\ndb.session_count()\n\
         print(int(next(l for l in open('/proc/self/status') if l.startswith('VmRSS')).split()[1]) / 1024)",
    );
    report.figure("Python: resident with an open store, median", resident, "MB", &Budget::AtMost(25.0));
    let replay = several(
        "import sys, time, statistics, hermes_state\ndb = hermes_state.SessionDB(sys.argv[1])\nspent = []\n\
         for _ in range(9):\n    t = time.perf_counter(); m = db.get_messages_as_conversation('s'); \
         spent.append((time.perf_counter() - t) * 1e3); assert len(m) == 4000\nprint(statistics.median(spent))",
    );
    let bare = several(
        "import sys, time, statistics, sqlite3\nc = sqlite3.connect(sys.argv[1]); c.row_factory = sqlite3.Row; spent = []\n\
         for _ in range(9):\n    t = time.perf_counter(); m = [dict(r) for r in c.execute(\"SELECT * FROM messages WHERE session_id = 's' \
         AND active = 1 ORDER BY id\")]; spent.append((time.perf_counter() - t) * 1e3)\nprint(statistics.median(spent))",
    );
    report.note("the same rows into dicts by the standard library's sqlite3", &format!("{bare:.1} ms"));
    let dicts = several(
        "import sys, time, statistics, sqlite3, hermes_state\nstore = hermes_state.SessionDB(sys.argv[1])\n\
         c = sqlite3.connect(sys.argv[1]); ours, query = [], []\n\
         for _ in range(9):\n    t = time.perf_counter(); m = store.get_messages('s'); ours.append(time.perf_counter() - t); \
         assert len(m) == 4000\n    \
         t = time.perf_counter(); r = c.execute(\"SELECT * FROM messages WHERE session_id = 's' AND active = 1 ORDER BY id\").fetchall(); \
         query.append(time.perf_counter() - t)\n\
         print((statistics.median(ours) - statistics.median(query)) / 4000 * 1e6)",
    );
    report.figure("Python: a message dict beyond the query", dicts, "µs", &Budget::AtMost(4.0));
    report.figure("Python: replay of 4,000 messages into dicts, median", replay, "ms", &Budget::AtMost(15.0));
}
