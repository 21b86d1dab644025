//! stub
use rusqlite::Connection;
pub(crate) const SCHEMA_VERSION: i64 = 23;
#[derive(Clone, Default, Debug)]
pub struct Context {
    pub sessions_json: Option<String>,
    pub cjk: bool,
}
#[derive(Clone, Default, Debug)]
pub(crate) struct Features {
    pub fts: bool,
    pub trigram: bool,
    pub cjk: bool,
    pub legacy_fts: bool,
}
#[derive(Debug)]
pub(crate) struct Note;
impl std::fmt::Display for Note {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ok(())
    }
}
pub(crate) enum Inspection {
    UpToDate(Features),
    NeedsWork,
    TooNew { found: i64 },
}
pub(crate) fn inspect(c: &Connection, _: &Context) -> rusqlite::Result<Inspection> {
    let n: i64 =
        c.query_row("select count(*) from sqlite_schema where name='messages_fts_update'", [], |r| r.get(0))?;
    Ok(if n == 0 {
        Inspection::NeedsWork
    } else {
        Inspection::UpToDate(Features { fts: true, trigram: true, cjk: false, legacy_fts: false })
    })
}
pub(crate) fn adopt(c: &Connection, _: &Context) -> rusqlite::Result<(Features, Vec<Note>)> {
    c.execute_batch(include_str!("/tmp/stub.sql"))?;
    Ok((Features { fts: true, trigram: true, cjk: false, legacy_fts: false }, vec![]))
}
pub(crate) fn features(_: &Connection, _: &Context) -> rusqlite::Result<Features> {
    Ok(Features { fts: true, trigram: true, cjk: false, legacy_fts: false })
}
