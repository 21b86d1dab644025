//! Cutting text into words with SQLite's own tokenizer, so that every engine finds the same words.
//!
//! The tables of `unicode61` (what is a letter, what it folds to) belong to the bundled SQLite; no copy of them here can
//! drift from what its index does.
#![expect(unsafe_code, reason = "SQLite hands out its tokenizers through C only")]

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use rusqlite::{Connection, ffi};

use crate::error::{Error, Result};

/// A word of a text: folded, and where it stands there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// FTS5 looks at so many bytes of a word; words that differ only behind them are the same.
const MAX_TOKEN: usize = 32_768;

thread_local! {
    /// This thread's tokenizer, once it needed one.
    static OF_THREAD: RefCell<Option<Tokenizer>> = const { RefCell::new(None) };
}

/// Lends this thread's tokenizer.
///
/// # Errors
/// Those of [`Tokenizer::unicode61`].
pub(crate) fn with_tokenizer<T>(use_it: impl FnOnce(&mut Tokenizer) -> T) -> Result<T> {
    OF_THREAD.with_borrow_mut(|tokenizer| {
        let tokenizer = match tokenizer {
            Some(tokenizer) => tokenizer,
            none => none.insert(Tokenizer::unicode61()?),
        };
        Ok(use_it(tokenizer))
    })
}

/// SQLite's `unicode61` with its defaults.
///
/// Cutting takes no memory of its own beyond a buffer for the longest word, which is kept.
pub(crate) struct Tokenizer {
    tokenize: Tokenize,
    delete: unsafe extern "C" fn(*mut ffi::Fts5Tokenizer),
    instance: *mut ffi::Fts5Tokenizer,
    /// Owns the FTS5 module that the functions above belong to, so it must outlive the instance.
    _connection: Connection,
}

pub(super) type Receive = unsafe extern "C" fn(*mut c_void, c_int, *const c_char, c_int, c_int, c_int) -> c_int;
pub(super) type Tokenize =
    unsafe extern "C" fn(*mut ffi::Fts5Tokenizer, *mut c_void, c_int, *const c_char, c_int, Option<Receive>) -> c_int;

// SAFETY: neither the tokenizer (a table and a buffer from SQLite's allocator) nor the connection (built to be used by
// any one thread at a time) is bound to the thread that made it, and every use takes `&mut self`.
unsafe impl Send for Tokenizer {}

impl Tokenizer {
    /// The standard tokenizer of FTS5, of the SQLite that is built in.
    ///
    /// # Errors
    /// If that SQLite has no FTS5, or there is no memory.
    pub(crate) fn unicode61() -> Result<Self> {
        let failed = |what: &str| Error::Engine { message: format!("SQLite's tokenizer: {what}"), code: 0 };
        let connection = Connection::open_in_memory().map_err(|error| failed(&error.to_string()))?;
        let api = fts5_api(&connection).map_err(|error| failed(&error.to_string()))?;
        let mut user_data = ptr::null_mut();
        let mut methods = ffi::fts5_tokenizer { xCreate: None, xDelete: None, xTokenize: None };
        let mut instance = ptr::null_mut();
        // SAFETY: `api` points to the live FTS5 module of `connection`; the out-pointers are valid for the calls, and
        // `xCreate` gets the user data that was registered with it and no arguments.
        let code = unsafe {
            match (*api).xFindTokenizer {
                Some(find) => find(api, c"unicode61".as_ptr(), &raw mut user_data, &raw mut methods),
                None => ffi::SQLITE_ERROR,
            }
        };
        let (Some(create), Some(delete), Some(tokenize)) = (methods.xCreate, methods.xDelete, methods.xTokenize) else {
            return Err(failed(ffi::code_to_str(code)));
        };
        // SAFETY: as above; on success `instance` is an object of these methods.
        let code = unsafe { create(user_data, ptr::null_mut(), 0, &raw mut instance) };
        if code != ffi::SQLITE_OK || instance.is_null() {
            return Err(failed(ffi::code_to_str(code)));
        }
        Ok(Self { tokenize, delete, instance, _connection: connection })
    }

    /// The words of a text, as FTS5's index has them.
    pub(crate) fn words(&mut self, text: &str, sink: &mut dyn FnMut(Token<'_>)) {
        self.whole_words(text, &mut |token| sink(shortened(token)));
    }

    /// The words in their full length, however long. A text beyond the reach of C's integers is read as far as they reach, which is twice as far
    /// as a value of either engine.
    pub(crate) fn whole_words(&mut self, text: &str, sink: &mut dyn FnMut(Token<'_>)) {
        let text = beginning(text, i32::MAX as usize);
        let length = c_int::try_from(text.len()).unwrap_or(c_int::MAX);
        let mut sink = Sink { sink, panic: None };
        // SAFETY: the instance is live and used by nobody else (`&mut self`, which also keeps the sink from coming back
        // here); text and sink outlive the call; `receive` has the type of the callback and takes this context.
        let code = unsafe {
            (self.tokenize)(
                self.instance,
                (&raw mut sink).cast(),
                ffi::FTS5_TOKENIZE_DOCUMENT,
                text.as_ptr().cast(),
                length,
                Some(receive),
            )
        };
        if let Some(panic) = sink.panic {
            resume_unwind(panic);
        }
        // All that can fail is the buffer for a word: what Rust's own collections do then is right here too, as going on
        // would lose words without a word.
        assert!(code == ffi::SQLITE_OK, "no memory for a word: {}", ffi::code_to_str(code));
    }
}

impl Drop for Tokenizer {
    fn drop(&mut self) {
        // SAFETY: the instance was made by the same methods and is deleted once, before its module.
        unsafe { (self.delete)(self.instance) }
    }
}

/// The table of functions that FTS5 gives out. Asking for it makes the connection read the schema of its file, which may
/// be damaged or no schema at all.
pub(super) fn fts5_api(connection: &Connection) -> rusqlite::Result<*mut ffi::fts5_api> {
    let mut api: *mut ffi::fts5_api = ptr::null_mut();
    let mut statement = ptr::null_mut();
    let mut failure = None;
    // SAFETY: the handle is live for the whole block, its message is copied before the next call, and the statement is finalised once and not used after.
    // `fts5(?1)` stores the table, which lives as long as the connection, through the pointer bound under its documented
    // type name; `api` outlives the statement.
    unsafe {
        let sql = c"SELECT fts5(?1)";
        let prepared =
            ffi::sqlite3_prepare_v2(connection.handle(), sql.as_ptr(), -1, &raw mut statement, ptr::null_mut());
        if prepared == ffi::SQLITE_OK {
            ffi::sqlite3_bind_pointer(statement, 1, (&raw mut api).cast(), c"fts5_api_ptr".as_ptr(), None);
            ffi::sqlite3_step(statement);
        } else {
            let told = CStr::from_ptr(ffi::sqlite3_errmsg(connection.handle())).to_string_lossy().into_owned();
            let code = ffi::sqlite3_extended_errcode(connection.handle());
            failure = Some(rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(told)));
        }
        ffi::sqlite3_finalize(statement);
    }
    match failure {
        Some(error) => Err(error),
        None if api.is_null() => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_ERROR), None)),
        None => Ok(api),
    }
}

struct Sink<'a> {
    sink: &'a mut dyn FnMut(Token<'_>),
    panic: Option<Box<dyn Any + Send>>,
}

/// Takes a token from C. A panic is kept for the Rust side of the call, and ends the cutting.
unsafe extern "C" fn receive(
    context: *mut c_void,
    _flags: c_int,
    text: *const c_char,
    length: c_int,
    start: c_int,
    end: c_int,
) -> c_int {
    // SAFETY: the context is the sink of the call to the tokenizer that this is part of, and nobody else refers to it.
    let sink = unsafe { &mut *context.cast::<Sink<'_>>() };
    let [length, start, end] = [length, start, end].map(|number| usize::try_from(number).unwrap_or_default());
    let bytes = match length {
        0 => &[],
        // SAFETY: C passes a buffer of this length, which it leaves alone during the call.
        _ => unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) },
    };
    let given = catch_unwind(AssertUnwindSafe(|| {
        // Folding maps characters to characters, so this is valid; were it not, a mark is better than no word.
        (sink.sink)(Token { text: &String::from_utf8_lossy(bytes), start, end });
    }));
    match given {
        Ok(()) => ffi::SQLITE_OK,
        Err(panic) => {
            sink.panic = Some(panic);
            ffi::SQLITE_ERROR
        }
    }
}

/// FTS5 cuts a word in the middle of a character, if need be; here the character goes too.
pub(crate) fn shortened(token: Token<'_>) -> Token<'_> {
    Token { text: beginning(token.text, MAX_TOKEN), ..token }
}

/// As many whole characters of a text as have at most so many bytes.
pub(crate) fn beginning(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    let mut end = bytes;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests;
