//! What `/proc` says about processes.

/// The letter of a process's state and the id of its parent; `None` if there is no such process.
fn state_and_parent(pid: u32) -> Option<(char, u32)> {
    #[expect(clippy::disallowed_methods, reason = "a text of the kernel")]
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may hold anything, also spaces and brackets.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Whether the process no longer runs; its parent may have left it unwaited for.
pub(crate) fn is_gone(pid: u32) -> bool {
    state_and_parent(pid).is_none_or(|(state, _)| matches!(state, 'Z' | 'X'))
}

/// Whether the process is stopped, or gone.
pub(crate) fn is_stopped(pid: u32) -> bool {
    state_and_parent(pid).is_none_or(|(state, _)| matches!(state, 'T' | 'Z' | 'X'))
}

/// The processes whose parent this one is.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|candidate| state_and_parent(*candidate).is_some_and(|(_, parent)| parent == pid))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_child_is_seen_until_it_ends() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        assert!(children(std::process::id()).contains(&child.id()));
        assert!(!is_gone(child.id()) && !is_stopped(child.id()));
        child.kill().unwrap();
        assert!(crate::deadline::wait_until(std::time::Duration::from_secs(30), || is_gone(child.id())));
        child.wait().unwrap();
        assert!(is_gone(child.id()) && !children(std::process::id()).contains(&child.id()));
    }
}
