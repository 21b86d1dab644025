//! Files that agents keep for a session in a folder, and that go with it. A name is compared, never built into a path of
//! its own: no id leads out of the folder, or stands for other files than those that bear it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Removes from a folder, and not from those within it, the files of a session: `<id>.json`, `<id>.jsonl` and every
/// `request_dump_<id>_….json`. What is missing, or cannot be removed, is passed over.
pub fn remove_session_files(folder: &Path, id: &str) {
    remove(folder, &[id.to_owned()], |_| HashSet::new());
}

/// The same for several sessions. A dump `request_dump_a_b_….json` may be one of `a` or of `a_b`: it is that of the
/// longest id that is, or was, a session's, which `existing` is asked for.
pub(crate) fn remove(folder: &Path, ids: &[String], existing: impl FnOnce(&[String]) -> HashSet<String>) {
    let ids: HashSet<&str> = ids.iter().map(String::as_str).collect();
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut dumps: HashMap<PathBuf, Vec<String>> = HashMap::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let transcript = name.strip_suffix(".json").or_else(|| name.strip_suffix(".jsonl"));
        if transcript.is_some_and(|id| ids.contains(id)) {
            let _ = fs::remove_file(entry.path());
        } else if let Some(longer) = dump_of(name, &ids) {
            dumps.insert(entry.path(), longer);
        }
    }
    let doubtful: HashSet<String> = dumps.values().flatten().cloned().collect();
    let existing =
        if doubtful.is_empty() { HashSet::new() } else { existing(&doubtful.into_iter().collect::<Vec<_>>()) };
    for (dump, longer) in dumps {
        if !longer.iter().any(|id| existing.contains(id)) {
            let _ = fs::remove_file(dump);
        }
    }
}

/// If the name is that of a dump of one of the sessions: the longer ids that it may be a dump of instead.
fn dump_of(name: &str, ids: &HashSet<&str>) -> Option<Vec<String>> {
    let rest = name.strip_prefix("request_dump_")?.strip_suffix(".json")?;
    let candidates: Vec<&str> = rest.match_indices('_').map(|(end, _)| &rest[..end]).collect();
    let longest = candidates.iter().rposition(|id| ids.contains(id))?;
    Some(candidates[longest + 1..].iter().map(|id| (*id).to_owned()).collect())
}
