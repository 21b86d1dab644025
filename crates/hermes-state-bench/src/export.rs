//! Export of a very long session: what a process that does nothing else needs for it.

use std::process::Command;

use hermes_state::{NewMessage, SessionDb};

use crate::report::{Budget, Report};
use crate::workload::store;

const MESSAGES: usize = 60_000;
const AT_ONCE: usize = 1_000;

/// The part that is measured, in a process of its own: exports session `s` and says how much memory it took, in MB.
#[expect(clippy::print_stdout, reason = "the answer to the process that asked")]
pub(crate) fn play(path: &str) {
    let db = SessionDb::open_read_only(path).expect("opens");
    let export = db.export_session("s").expect("reads").expect("is there");
    let mut length = 0;
    for part in export.into_json() {
        length += part.expect("reads").len();
    }
    assert!(length > MESSAGES * 400);
    #[expect(clippy::disallowed_methods, reason = "a file of the kernel's")]
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    println!("{}", peak.unwrap_or(f64::NAN) / 1024.0);
}

pub(crate) fn measure(report: &mut Report) {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, db) = store(folder.path(), "long.db");
    for begin in (0..MESSAGES).step_by(AT_ONCE) {
        let text = |n: usize| NewMessage::new("user", format!("message {n}: {}", "harbour crane ".repeat(28)));
        db.append_messages("s", (begin..begin + AT_ONCE).map(text).collect()).expect("appends");
    }
    drop(db);
    let output = Command::new(std::env::current_exe().expect("this program"))
        .arg("role:export")
        .arg(&path)
        .output()
        .expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let peak: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
    report.figure("export of 60,000 messages: peak memory", peak, "MB", &Budget::AtMost(60.0));
}
