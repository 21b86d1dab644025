//! stub
use crate::error::Holder;
use std::{path::Path, time::Instant};
pub(crate) struct Queue;
impl Queue {
    pub(crate) fn join(_: &Path) -> Self {
        Queue
    }
    pub(crate) fn none() -> Self {
        Queue
    }
    pub(crate) fn wait(&mut self, _: &'static str, _: Instant) -> bool {
        true
    }
    pub(crate) fn holding(&mut self) {}
    pub(crate) fn leave(&mut self) {}
    pub(crate) fn holder(&self) -> Option<Holder> {
        None
    }
}
pub(crate) struct Sibling {
    pub pid: i32,
    pub program: Option<String>,
    pub operation: Option<&'static str>,
    pub waiting_for: Option<std::time::Duration>,
    pub holding_for: Option<std::time::Duration>,
}
pub(crate) fn list(_: &Path) -> Vec<Sibling> {
    vec![]
}
