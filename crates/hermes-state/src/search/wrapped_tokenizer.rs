//! Tokenizers that FTS5 calls under some name and that are made of one of SQLite's own: everything about them but what
//! they do with a text.
#![expect(unsafe_code, reason = "FTS5 takes its tokenizers through C only")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use rusqlite::{Connection, ffi};

use super::tokens::{Tokenize, fts5_api};

/// One of SQLite's own.
struct Original {
    methods: ffi::fts5_tokenizer,
    user_data: *mut c_void,
}

/// An instance: one of SQLite's own, with its methods. FTS5 only ever sees a pointer to it.
pub(super) struct Wrapped {
    pub(super) tokenize: Tokenize,
    pub(super) inner: *mut ffi::Fts5Tokenizer,
    delete: unsafe extern "C" fn(*mut ffi::Fts5Tokenizer),
}

/// Makes a tokenizer known to a connection that has an `original`, which may be the one it takes the place of. FTS5 calls
/// `tokenize` with instances of [`Wrapped`].
///
/// # Errors
/// SQLite's, if it has no such original or no memory.
pub(super) fn register(
    connection: &Connection,
    name: &CStr,
    original: &CStr,
    tokenize: Tokenize,
) -> rusqlite::Result<()> {
    let api = fts5_api(connection)?;
    let mut wrapped = Box::new(Original {
        methods: ffi::fts5_tokenizer { xCreate: None, xDelete: None, xTokenize: None },
        user_data: ptr::null_mut(),
    });
    let mut methods = ffi::fts5_tokenizer { xCreate: Some(create), xDelete: Some(delete), xTokenize: Some(tokenize) };
    // SAFETY: `api` is the live FTS5 module of this connection; the out-pointers are valid for the calls. FTS5 copies the
    // name and the methods during the call, and keeps the box until it calls `forget` with it: at the end of the
    // connection. If the call fails, FTS5 has not taken the box, and it is freed here.
    let code = unsafe {
        match ((*api).xFindTokenizer, (*api).xCreateTokenizer) {
            (Some(find), Some(create_tokenizer)) => {
                let found = find(api, original.as_ptr(), &raw mut wrapped.user_data, &raw mut wrapped.methods);
                if found == ffi::SQLITE_OK {
                    let kept = Box::into_raw(wrapped);
                    let code = create_tokenizer(api, name.as_ptr(), kept.cast(), &raw mut methods, Some(forget));
                    if code != ffi::SQLITE_OK {
                        drop(Box::from_raw(kept));
                    }
                    code
                } else {
                    found
                }
            }
            _ => ffi::SQLITE_ERROR,
        }
    };
    if code == ffi::SQLITE_OK { Ok(()) } else { Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)) }
}

unsafe extern "C" fn forget(original: *mut c_void) {
    // SAFETY: FTS5 hands back what it was given in `register`, once, when nobody needs it any more.
    drop(unsafe { Box::from_raw(original.cast::<Original>()) });
}

/// Makes an instance; the arguments are those of the original.
unsafe extern "C" fn create(
    original: *mut c_void,
    arguments: *mut *const c_char,
    count: c_int,
    out: *mut *mut ffi::Fts5Tokenizer,
) -> c_int {
    // SAFETY: the user data is the box of `register`, which lives as long as the connection.
    let Original { methods, user_data } = unsafe { &*original.cast::<Original>() };
    let (Some(create), Some(delete), Some(tokenize)) = (methods.xCreate, methods.xDelete, methods.xTokenize) else {
        return ffi::SQLITE_ERROR;
    };
    let mut inner = ptr::null_mut();
    // SAFETY: the original gets its own user data and the arguments as they came; on success `inner` is an object of these
    // methods, which the new instance owns from here on, and `out` is FTS5's place for that instance.
    unsafe {
        let code = create(*user_data, arguments, count, &raw mut inner);
        if code == ffi::SQLITE_OK {
            *out = Box::into_raw(Box::new(Wrapped { tokenize, inner, delete })).cast();
        }
        code
    }
}

unsafe extern "C" fn delete(instance: *mut ffi::Fts5Tokenizer) {
    if instance.is_null() {
        return;
    }
    // SAFETY: the pointer came from the box in `create`, and FTS5 deletes an instance once, as its last use; the inner
    // one was made by the same methods and goes with it.
    unsafe {
        let instance = Box::from_raw(instance.cast::<Wrapped>());
        (instance.delete)(instance.inner);
    }
}
