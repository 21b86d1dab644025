//! Tells the two kinds of a store's location apart: a file's path and a server's URL.

use std::path::Path;

/// Whether a store's location is the URL of a server, well-formed or not, and not the path of a file. Whatever begins
/// like one counts, also of a scheme that no store has and with slashes lost on the way: a typo must not become a file
/// of that name. A file whose name does begin so is reached as `./name`.
///
/// ```
/// assert!(hermes_state::is_url("postgresql://db.example/agents"));
/// assert!(hermes_state::is_url("postgres:/db.example/agents"));
/// assert!(!hermes_state::is_url("/home/ada/.hermes/state.db"));
/// ```
#[must_use]
pub fn is_url(location: impl AsRef<Path>) -> bool {
    // What is no text decodes to something that still begins as it does.
    let text = location.as_ref().to_string_lossy().trim_start().to_ascii_lowercase();
    let ours = ["postgresql", "postgres"].iter().filter_map(|scheme| text.strip_prefix(scheme));
    if ours.into_iter().any(|rest| rest.starts_with(':') || rest.starts_with("//")) {
        return true;
    }
    text.split_once("://").is_some_and(|(scheme, _)| {
        scheme != "file" && !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphabetic())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_begins_like_a_url_is_no_file() {
        for url in [
            "postgresql://h/d",
            "postgres://h",
            "PostgreSQL://h",
            " postgresql://h",
            "postgresql:/h/d",
            "postgresql:h",
            "postgres:",
            "postgresql//h/d",
            "mysql://h",
            "postgress://h",
        ] {
            assert!(is_url(url), "{url}");
        }
        for path in [
            "state.db",
            "/a/postgresql/state.db",
            "postgresql.db",
            "postgres",
            "./postgresql:x",
            "C:\\x",
            "file:///x",
            "",
        ] {
            assert!(!is_url(path), "{path}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_url_that_is_no_text_is_no_file_either() {
        use std::os::unix::ffi::OsStrExt as _;
        let location = |bytes| std::ffi::OsStr::from_bytes(bytes).to_owned();
        assert!(is_url(location(b"postgresql://u:\xff@h/d")));
        assert!(!is_url(location(b"/home/\xff/state.db")));
    }
}
