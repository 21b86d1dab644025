//! `who`: the processes that have the store open.

use hermes_state::{SessionDb, is_url};
use serde_json::json;

use crate::arguments::Global;
use crate::commands::status;
use crate::error::CommandError;
use crate::output::Output;
use crate::store;

pub(crate) fn run(global: &Global, out: &mut Output) -> Result<(), CommandError> {
    let looked = store::look(global)?;
    let users = looked.db.as_ref().map(SessionDb::who).transpose()?.unwrap_or_default();
    if out.json {
        let users: Vec<_> = users.iter().map(status::user_view).collect();
        return out.document(&json!({ "store": looked.location(), "users": users }));
    }
    looked.note_if_missing();
    let on_server = looked.db.as_ref().is_some_and(|db| is_url(db.path()));
    out.table(&[], users.iter().map(|user| vec![status::describe_user(user, on_server)]).collect())
}
