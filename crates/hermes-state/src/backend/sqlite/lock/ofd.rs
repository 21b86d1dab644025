//! Means B (stub).
pub(super) fn install() -> bool {
    false
}
pub(super) fn before_fork() {}
pub(super) fn after_fork() {}
pub(super) fn in_child() {}
