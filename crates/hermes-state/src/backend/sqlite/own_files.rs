//! Reads of a connection's own files, through the descriptors that SQLite has open on them: opening a file of a store
//! once more, and closing it, could drop this process's locks on it.
#![expect(unsafe_code, reason = "SQLite gives its files out through C only")]

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use rusqlite::{Connection, ffi};

/// An open file of a connection.
pub(super) struct OwnFile<'a> {
    file: NonNull<ffi::sqlite3_file>,
    methods: NonNull<ffi::sqlite3_io_methods>,
    connection: PhantomData<&'a Connection>,
}

impl<'a> OwnFile<'a> {
    /// The database itself.
    pub(super) fn main(connection: &'a Connection) -> Option<Self> {
        Self::ask(connection, ffi::SQLITE_FCNTL_FILE_POINTER)
    }

    /// The log of a connection that has one.
    pub(super) fn log(connection: &'a Connection) -> Option<Self> {
        Self::ask(connection, ffi::SQLITE_FCNTL_JOURNAL_POINTER)
    }

    fn ask(connection: &'a Connection, which: c_int) -> Option<Self> {
        let mut file: *mut ffi::sqlite3_file = ptr::null_mut();
        // SAFETY: the handle is live as long as the borrow of the connection, which is used by this thread only; both
        // questions store a pointer to a file object of the connection, or nothing, through the one passed.
        let code = unsafe {
            ffi::sqlite3_file_control(connection.handle(), c"main".as_ptr(), which, (&raw mut file).cast::<c_void>())
        };
        let file = NonNull::new(file).filter(|_| code == ffi::SQLITE_OK)?;
        // SAFETY: the file object is the connection's, which keeps it where it is until it is closed; its methods are
        // null while the file is not open.
        let methods = NonNull::new(unsafe { file.as_ref() }.pMethods.cast_mut())?;
        Some(Self { file, methods, connection: PhantomData })
    }

    fn methods(&self) -> &ffi::sqlite3_io_methods {
        // SAFETY: a static table of the file system layer.
        unsafe { self.methods.as_ref() }
    }

    /// So many bytes from there on; `None` where the file is shorter, or cannot be read.
    pub(super) fn read<const SIZE: usize>(&self, at: i64) -> Option<[u8; SIZE]> {
        let mut bytes = [0; SIZE];
        let read = self.methods().xRead?;
        let size = c_int::try_from(SIZE).ok()?;
        // SAFETY: the file is open, and the buffer has the size that is passed.
        let code = unsafe { read(self.file.as_ptr(), bytes.as_mut_ptr().cast(), size, at) };
        (code == ffi::SQLITE_OK).then_some(bytes)
    }

    /// The first numbers of the memory that the connections of a store share, if this one takes part in it. What others
    /// are just writing may be half of it.
    ///
    /// The file behind it must not have been cut below [`SHARED_BYTES`](Self::SHARED_BYTES).
    pub(super) fn shared<const COUNT: usize>(&self) -> Option<[u32; COUNT]> {
        const { assert!(COUNT * 4 <= Self::SHARED_BYTES as usize) };
        if self.methods().iVersion < 2 {
            return None;
        }
        let map = self.methods().xShmMap?;
        let mut region: *mut c_void = ptr::null_mut();
        let size = c_int::try_from(Self::SHARED_BYTES).ok()?;
        // SAFETY: the file is open; asked not to extend it, the layer gives the address of the first region or null.
        let code = unsafe { map(self.file.as_ptr(), 0, size, 0, (&raw mut region).cast()) };
        let region = NonNull::new(region.cast::<u32>()).filter(|_| code == ffi::SQLITE_OK)?;
        // SAFETY: the region is at the address of a page, has more numbers than are read, and stays mapped until the
        // connection is closed. Others change it meanwhile, so it is read as memory that may change.
        Some(std::array::from_fn(|index| unsafe { region.add(index).read_volatile() }))
    }

    /// The size of a region of the shared memory.
    pub(super) const SHARED_BYTES: u64 = 32 * 1024;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_connection_are_read_without_being_opened() {
        let folder = tempfile::tempdir().unwrap();
        let connection = Connection::open(folder.path().join("t.db")).unwrap();
        connection.execute_batch("CREATE TABLE t (x)").unwrap();
        assert!(OwnFile::log(&connection).is_none_or(|file| file.read::<4>(0).is_none()), "no log yet");
        connection.execute_batch("PRAGMA journal_mode = WAL; INSERT INTO t VALUES (1)").unwrap();
        let main = OwnFile::main(&connection).unwrap();
        assert_eq!(&main.read::<16>(0).unwrap(), b"SQLite format 3\0");
        assert_eq!(main.read::<16>(1 << 40), None);
        let log = OwnFile::log(&connection).unwrap();
        assert_eq!(u32::from_be_bytes(log.read(0).unwrap()) & !1, 0x377f_0682);
        let [version, ..] = main.shared::<12>().unwrap();
        assert_eq!(version, 3_007_000);
        assert!(OwnFile::main(&Connection::open_in_memory().unwrap()).is_none_or(|file| file.shared::<1>().is_none()));
    }
}
