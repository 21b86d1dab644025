//! The environment and the home folder: the only place that reads them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use hermes_state::is_url;

use crate::error::{CommandError, Kind};

/// The variable that names a store on a server.
const SERVER_URL: &str = "HERMES_STATE_URL";
/// The variable that the server's own programs take the password from.
const PASSWORD: &str = "PGPASSWORD";

/// The store on a server that `$HERMES_STATE_URL` names. What is no URL there is refused and not shown: it may hold a
/// password, and must not become a file.
pub(crate) fn server_url() -> Result<Option<PathBuf>, CommandError> {
    match stripped(SERVER_URL).map(PathBuf::from) {
        Some(location) if !is_url(&location) => {
            let message = format!("what {SERVER_URL} holds is not the URL of a server");
            Err(CommandError::new(Kind::Usage, message)
                .hint("Write postgresql://user@host:port/database?schema=name there; name a file with --db."))
        }
        location => Ok(location),
    }
}

/// The password for a server whose URL has none.
pub(crate) fn password() -> Result<Option<String>, CommandError> {
    match std::env::var_os(PASSWORD).filter(|password| !password.is_empty()).map(OsString::into_string) {
        None => Ok(None),
        Some(Ok(password)) => Ok(Some(password)),
        Some(Err(_)) => Err(CommandError::new(Kind::Usage, format!("what {PASSWORD} holds is not UTF-8"))
            .hint("Such a password can stand in the URL, its bytes written as %FF.")),
    }
}

/// The text without the URLs with a password that are among this process's arguments, wherever they stand in it: a URL
/// in the place of a word is quoted by whoever refuses it.
pub(crate) fn without_passwords(text: &str) -> String {
    hide_urls(text, std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()))
}

fn hide_urls(text: &str, arguments: impl Iterator<Item = String>) -> String {
    arguments.fold(text.to_owned(), |text, argument| {
        let value = argument.split_once('=').map_or("", |(_, value)| value);
        [argument.as_str(), value].into_iter().fold(text, |text, part| {
            if is_url(part) && may_hold_password(part) { text.replace(part, "postgresql://…") } else { text }
        })
    })
}

fn may_hold_password(url: &str) -> bool {
    let rest = url.split_once("//").map_or(url, |(_, rest)| rest);
    rest.rsplit_once('@').is_some_and(|(login, _)| login.contains(':')) || rest.contains("pass") || rest.contains('%')
}

/// The folder that Hermes programs keep their files in.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) folder: PathBuf,
    /// What the user should know about the choice of this folder.
    pub(crate) warning: Option<String>,
}

impl Home {
    /// `$HERMES_HOME`, else the platform's default; `None` if the user has no home.
    pub(crate) fn find() -> Option<Self> {
        if let Some(folder) = stripped("HERMES_HOME") {
            return Some(Self { folder: folder.into(), warning: None });
        }
        let folder = default_folder()?;
        let warning = read(&folder.join("active_profile"))
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty() && name != "default")
            .map(|name| {
                format!(
                    "HERMES_HOME is not set, but the active profile is '{name}': using {}, not that profile's folder",
                    folder.display()
                )
            });
        Some(Self { folder, warning })
    }

    /// Where the store is, unless the caller names one.
    pub(crate) fn store(&self) -> PathBuf {
        self.folder.join("state.db")
    }

    /// Where the spools of stores on servers are.
    pub(crate) fn spools(&self) -> PathBuf {
        self.folder.join("spool")
    }

    /// The gateway's sessions, from which stores of old releases take what they lack.
    pub(crate) fn sessions_json(&self) -> PathBuf {
        self.folder.join("sessions").join("sessions.json")
    }

    /// Whether this machine's other programs have the tokenizer for Chinese, Japanese and Korean.
    pub(crate) fn has_cjk_tokenizer(&self) -> bool {
        let switch = stripped("HERMES_CJK_FTS").unwrap_or_default().to_string_lossy().to_lowercase();
        if ["0", "false", "off", "no"].contains(&switch.as_str()) {
            return false;
        }
        let library = match stripped("HERMES_FTS5_CJK_SO") {
            Some(path) => with_user_home(path.into()),
            None => self.folder.join("lib").join("libfts5_cjk.so"),
        };
        library.is_file()
    }
}

#[cfg(windows)]
fn default_folder() -> Option<PathBuf> {
    let local = stripped("LOCALAPPDATA").map(PathBuf::from);
    Some(local.or_else(|| Some(std::env::home_dir()?.join("AppData").join("Local")))?.join("hermes"))
}

#[cfg(not(windows))]
fn default_folder() -> Option<PathBuf> {
    Some(std::env::home_dir()?.join(".hermes"))
}

/// A variable without white space around it; `None` if nothing is left.
fn stripped(name: &str) -> Option<OsString> {
    let value = std::env::var_os(name)?;
    let value = match value.to_str() {
        Some(text) => OsString::from(text.trim()),
        None => value,
    };
    Some(value).filter(|value| !value.is_empty())
}

fn with_user_home(path: PathBuf) -> PathBuf {
    match (path.strip_prefix("~"), std::env::home_dir()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path,
    }
}

/// The text of a small file; one that cannot be read counts as absent.
#[expect(clippy::disallowed_methods, reason = "the one file read here is never a store's")]
fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_with_a_password_are_hidden() {
        let hide = |text: &str, argument: &str| hide_urls(text, std::iter::once(argument.to_owned()));
        let (secret, plain) = ("postgresql://me:pw@h/d", "postgresql://me@h/d");
        assert_eq!(hide(&format!("what is '{secret}'?"), secret), "what is 'postgresql://…'?");
        assert_eq!(hide(&format!("what is '{secret}'?"), &format!("--limit={secret}")), "what is 'postgresql://…'?");
        assert_eq!(hide(&format!("what is '{plain}'?"), plain), format!("what is '{plain}'?"));
        assert_eq!(hide("h/d?password=x", "postgresql://h/d?password=x"), "h/d?password=x");
        assert_eq!(hide("postgres:/h/d?password=x", "postgres:/h/d?password=x"), "postgresql://…");
    }
}
