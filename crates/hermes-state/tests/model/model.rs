//! The reference: sessions and messages as plain values, and the rules of titles, families and archives in a few lines.

use std::collections::BTreeMap;

use hermes_state::Content;

/// A title by its number.
pub(crate) fn title(number: u8) -> String {
    format!("Plan {number}")
}

pub(crate) struct Row {
    pub(crate) id: i64,
    pub(crate) role: &'static str,
    pub(crate) content: Content,
    /// The words it is found by.
    pub(crate) words: Vec<usize>,
    pub(crate) calls: usize,
    pub(crate) active: bool,
    pub(crate) compacted: bool,
}

#[derive(Default)]
pub(crate) struct Session {
    pub(crate) rows: Vec<Row>,
    pub(crate) parent: Option<String>,
    pub(crate) title: Option<String>,
    pub(crate) end_reason: Option<&'static str>,
    pub(crate) archived: bool,
}

impl Session {
    pub(crate) fn active(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.active)
    }

    /// One of its messages.
    pub(crate) fn pick(&self, number: u8) -> Option<&Row> {
        (!self.rows.is_empty()).then(|| &self.rows[usize::from(number) % self.rows.len()])
    }
}

#[derive(Default)]
pub(crate) struct Model {
    pub(crate) sessions: BTreeMap<String, Session>,
}

impl Model {
    /// Whether it can be created: a parent must exist. One that is there takes over a parent if it has none.
    pub(crate) fn create(&mut self, id: &str, parent: Option<&str>) -> bool {
        let has_parent = parent.is_none_or(|parent| parent == id || self.sessions.contains_key(parent));
        let keeps_its_own = self.sessions.get(id).is_some_and(|known| known.parent.is_some());
        if !has_parent && !keeps_its_own {
            return false;
        }
        let known = self.sessions.entry(id.to_owned()).or_default();
        if known.parent.is_none() {
            known.parent = parent.map(str::to_owned);
        }
        true
    }

    fn ended_by_compression(&self, id: &str) -> bool {
        self.sessions.get(id).is_some_and(|known| known.end_reason == Some("compression"))
    }

    /// The sessions that this one continues, nearest first.
    fn continued_by(&self, id: &str) -> Vec<String> {
        let mut ancestors = Vec::new();
        let mut current = id.to_owned();
        while let Some(parent) = self.sessions.get(&current).and_then(|known| known.parent.clone()) {
            if !self.ended_by_compression(&parent) || ancestors.contains(&parent) || parent == id {
                break;
            }
            ancestors.push(parent.clone());
            current = parent;
        }
        ancestors
    }

    fn holder(&self, title: &str, other_than: &str) -> Option<String> {
        let held = |known: &Session| known.title.as_deref() == Some(title);
        self.sessions.iter().find(|(id, known)| *id != other_than && held(known)).map(|(id, _)| id.clone())
    }

    /// Whether the session is there; `None` if another holds the title.
    pub(crate) fn set_title(&mut self, id: &str, title: Option<&str>) -> Option<bool> {
        if let Some(holder) = title.and_then(|title| self.holder(title, id)) {
            if !self.continued_by(id).contains(&holder) {
                return None;
            }
            self.sessions.get_mut(&holder)?.title = None;
        }
        Some(self.sessions.get_mut(id).map(|known| known.title = title.map(str::to_owned)).is_some())
    }

    /// Whether the session took a title, perhaps the next of its name.
    pub(crate) fn set_auto_title(&mut self, id: &str, wanted: &str) -> bool {
        if self.sessions.get(id).is_none_or(|known| known.title.is_some()) {
            return false;
        }
        if self.set_title(id, Some(wanted)).is_some() {
            return true;
        }
        let number = |title: &str| title.strip_prefix(wanted)?.strip_prefix(" #")?.parse::<u32>().ok();
        let taken = self.sessions.values().filter_map(|known| number(known.title.as_deref()?)).max().unwrap_or(1);
        self.set_title(id, Some(&format!("{wanted} #{}", taken + 1))).is_some()
    }

    /// Archives the conversation: those it continues, and all that continue it. Whether the session is there.
    pub(crate) fn archive(&mut self, id: &str, archived: bool) -> bool {
        if !self.sessions.contains_key(id) {
            return false;
        }
        let mut members = self.continued_by(id);
        members.push(id.to_owned());
        let mut reached = vec![id.to_owned()];
        while let Some(current) = reached.pop() {
            if self.ended_by_compression(&current) {
                for (child, known) in &self.sessions {
                    if known.parent.as_deref() == Some(&current) && !members.contains(child) {
                        members.push(child.clone());
                        reached.push(child.clone());
                    }
                }
            }
        }
        for member in members {
            if let Some(known) = self.sessions.get_mut(&member) {
                known.archived = archived;
            }
        }
        true
    }

    /// Whether it was there; its children lose their parent.
    pub(crate) fn delete(&mut self, id: &str) -> bool {
        let was_there = self.sessions.remove(id).is_some();
        for known in self.sessions.values_mut() {
            if known.parent.as_deref() == Some(id) {
                known.parent = None;
            }
        }
        was_there
    }

    pub(crate) fn delete_if_empty(&mut self, id: &str) -> bool {
        let has_children = self.sessions.values().any(|known| known.parent.as_deref() == Some(id));
        let is_empty = self.sessions.get(id).is_some_and(|known| known.title.is_none() && known.rows.is_empty());
        is_empty && !has_children && self.delete(id)
    }
}
