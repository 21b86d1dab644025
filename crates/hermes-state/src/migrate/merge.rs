//! Brings what a store lacks over from another one, and leaves alone what it has.
use super::report::{MigrationProgress, MigrationReport};
use super::write::Marker;
use crate::db::SessionDb;
use crate::error::Result;

pub(super) fn merge(
    _from: &SessionDb,
    _to: &SessionDb,
    _marker: Marker,
    _rows: &[u64],
    _report: &mut MigrationReport,
    _progress: &mut dyn FnMut(MigrationProgress),
) -> Result<()> {
    Ok(())
}

pub(super) fn plan(_from: &SessionDb, _to: &SessionDb, _report: &mut MigrationReport) -> Result<()> {
    Ok(())
}
