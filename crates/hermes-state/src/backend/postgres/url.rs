//! The location of a store on a server: what a URL says, and what may be shown of it.
//!
//! The URL is cut here and not by `tokio_postgres`, whose parser looks for the user in the whole text and which knows
//! neither `schema` nor libpq's stricter values of `sslmode`. What is not ours goes to its key-value parser, so that
//! names and values of all other parameters are judged in one place. No text of an error quotes a part of the URL
//! other than a parameter's name: any part may turn out to be a password with a character that should have been encoded.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::LoadBalanceHosts;

use crate::error::ServerTrouble;

const DEFAULT_SCHEMA: &str = "hermes_state";
const DEFAULT_APPLICATION: &str = "hermes-state";
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
const DEFAULT_PORT: u16 = 5432;
/// An idle peer that is gone is noticed after 5 + 3 × 2 s, one that leaves data unacknowledged after 10 s.
const DEFAULT_KEEPALIVES: [(&str, &str); 3] =
    [("keepalives_idle", "5"), ("keepalives_interval", "2"), ("keepalives_retries", "3")];
const DEFAULT_TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);
/// The server cuts longer names off.
const LONGEST_NAME: usize = 63;

/// How much encryption is asked for, in libpq's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SslMode {
    /// Never.
    Disable,
    /// If the server offers it.
    Prefer,
    /// Always; the certificate is verified if roots are named.
    Require,
    /// Always, with a certificate that the roots vouch for.
    VerifyCa,
    /// As [`VerifyCa`](Self::VerifyCa), and the certificate must be of the host in the URL.
    VerifyFull,
}

/// Where the certificates that are trusted come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Roots {
    /// The host's own collection.
    System,
    /// A file of PEM certificates.
    File(PathBuf),
}

/// One place at which a server may be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    /// By name; the address is looked up unless it is given.
    Tcp { name: String, address: Option<IpAddr> },
    /// By the folder of its socket.
    Unix(PathBuf),
}

/// A host with its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) host: Host,
    pub(crate) port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Tcp { name, .. } if name.contains(':') => write!(f, "[{name}]:{}", self.port),
            Host::Tcp { name, .. } => write!(f, "{name}:{}", self.port),
            Host::Unix(folder) => write!(f, "{}/.s.PGSQL.{}", folder.display(), self.port),
        }
    }
}

/// Where a store on a server is, and how to get there. Shows itself without its password.
#[derive(Clone)]
pub(crate) struct Address {
    shown: String,
    config: Config,
    endpoints: Vec<Endpoint>,
    schema: String,
    ssl_mode: SslMode,
    roots: Option<Roots>,
    connect_timeout: Duration,
}

fn bad(reason: impl Into<String>) -> ServerTrouble {
    ServerTrouble::BadUrl(reason.into())
}

impl Address {
    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// [`ServerTrouble::BadUrl`] says which part cannot be used, without quoting it.
    pub(crate) fn parse(url: &str) -> Result<Self, ServerTrouble> {
        let url = url.trim();
        let parts = Parts::cut(url)?;
        let mut parameters = parts.parameters()?;
        let endpoints = parts.endpoints(&mut parameters)?;
        let schema = take(&mut parameters, "schema").unwrap_or_else(|| DEFAULT_SCHEMA.to_owned());
        check_schema(&schema)?;
        let ssl_mode = ssl_mode(take(&mut parameters, "sslmode").as_deref())?;
        let roots = take(&mut parameters, "sslrootcert")
            .filter(|value| !value.is_empty())
            .map(|value| if value == "system" { Roots::System } else { Roots::File(value.into()) });
        let connect_timeout = match take(&mut parameters, "connect_timeout") {
            None => DEFAULT_CONNECT_TIMEOUT,
            Some(value) => match value.parse::<u32>() {
                Ok(seconds) if seconds > 0 => Duration::from_secs(seconds.into()),
                _ => return Err(bad("connect_timeout is not a number of seconds from 1 on")),
            },
        };
        // libpq counts this one in milliseconds, `tokio_postgres` in seconds; URLs are written for libpq.
        let tcp_user_timeout = match take(&mut parameters, "tcp_user_timeout") {
            None => DEFAULT_TCP_USER_TIMEOUT,
            Some(value) => match value.parse::<u32>() {
                Ok(milliseconds) => Duration::from_millis(milliseconds.into()),
                Err(_) => return Err(bad("tcp_user_timeout is not a number of milliseconds")),
            },
        };
        if let Some(count) = take(&mut parameters, "keepalives_count") {
            parameters.push(("keepalives_retries".to_owned(), count));
        }
        for (name, value) in DEFAULT_KEEPALIVES {
            if !parameters.iter().any(|(given, _)| given == name) {
                parameters.push((name.to_owned(), value.to_owned()));
            }
        }
        if !parameters.iter().any(|(name, _)| name == "application_name") {
            parameters.push(("application_name".to_owned(), DEFAULT_APPLICATION.to_owned()));
        }
        let weak = matches!(ssl_mode, SslMode::Disable | SslMode::Prefer);
        if weak && parameters.iter().any(|(name, value)| name == "sslnegotiation" && value == "direct") {
            return Err(bad("sslnegotiation=direct needs sslmode=require or stronger"));
        }
        let mut config = config(&parameters)?;
        if !tcp_user_timeout.is_zero() {
            config.tcp_user_timeout(tcp_user_timeout);
        }
        if let Some(user) = parts.user()? {
            config.user(user);
        }
        if let Some(database) = parts.database()? {
            config.dbname(database);
        }
        if let Some(password) = parts.password()? {
            config.password(password);
        }
        Ok(Self { shown: parts.shown()?, config, endpoints, schema, ssl_mode, roots, connect_timeout })
    }

    /// Uses this password if the URL has none.
    #[must_use]
    pub(crate) fn with_password(mut self, password: &str) -> Self {
        if self.config.get_password().is_none() {
            self.config.password(password);
        }
        self
    }

    /// What tells two addresses apart, password and all: never to be shown.
    pub(crate) fn key(&self) -> String {
        format!("{}\0{:?}", self.shown, self.config.get_password())
    }

    /// The schema in which the store is; a plain identifier, case-sensitive.
    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// The user, as far as the URL names one.
    pub(crate) fn user(&self) -> &str {
        self.config.get_user().unwrap_or("of this process")
    }

    /// The database; the server takes the user's name for it if the URL names none.
    pub(crate) fn database(&self) -> &str {
        self.config.get_dbname().unwrap_or_else(|| self.user())
    }

    pub(crate) fn ssl_mode(&self) -> SslMode {
        self.ssl_mode
    }

    pub(crate) fn roots(&self) -> Option<&Roots> {
        self.roots.as_ref()
    }

    /// How long an attempt to connect may take, all phases together.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// The places to try, in order.
    pub(crate) fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Whether the places are to be tried in random order.
    pub(crate) fn is_balanced(&self) -> bool {
        self.config.get_load_balance_hosts() == LoadBalanceHosts::Random
    }

    /// Whether the URL's `options` set this server setting.
    pub(crate) fn sets(&self, setting: &str) -> bool {
        let Some(options) = self.config.get_options() else { return false };
        let options = options.to_ascii_lowercase().replace('-', "_");
        options.split([' ', '\t', '=']).any(|word| word.trim_start_matches("_c").trim_start_matches('_') == setting)
    }

    /// The settings for one attempt, which names its host itself.
    pub(crate) fn config(&self) -> Config {
        self.config.clone()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.shown).finish()
    }
}

type Parameters = Vec<(String, String)>;

/// Takes a parameter out; of one that is given twice the last counts, as in libpq.
fn take(parameters: &mut Parameters, name: &str) -> Option<String> {
    let mut found = None;
    parameters.retain_mut(|(given, value)| {
        let ours = given == name;
        if ours {
            found = Some(std::mem::take(value));
        }
        !ours
    });
    found
}

fn ssl_mode(value: Option<&str>) -> Result<SslMode, ServerTrouble> {
    Ok(match value {
        None | Some("prefer") => SslMode::Prefer,
        Some("disable") => SslMode::Disable,
        Some("require") => SslMode::Require,
        Some("verify-ca") => SslMode::VerifyCa,
        Some("verify-full") => SslMode::VerifyFull,
        Some(_) => return Err(bad("sslmode is none of disable, prefer, require, verify-ca, verify-full")),
    })
}

fn check_schema(schema: &str) -> Result<(), ServerTrouble> {
    let plain = schema.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if schema.is_empty() || !plain || schema.len() > LONGEST_NAME || schema.as_bytes()[0].is_ascii_digit() {
        return Err(bad("schema is not a name of up to 63 letters, digits and _ that begins with no digit"));
    }
    if schema.to_ascii_lowercase().starts_with("pg_") {
        return Err(bad("schema begins with pg_, which the server keeps for itself"));
    }
    Ok(())
}

/// Hands what is not ours to `tokio_postgres` in its key-value form.
fn config(parameters: &Parameters) -> Result<Config, ServerTrouble> {
    let mut text = String::new();
    for (name, value) in parameters {
        let value = value.replace('\\', "\\\\").replace('\'', "\\'");
        text.push_str(&format!("{name}='{value}' "));
    }
    text.parse().map_err(|error: tokio_postgres::Error| {
        let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        bad(reason)
    })
}

/// The raw parts of a URL, still percent-encoded.
struct Parts<'a> {
    user: Option<&'a str>,
    password: Option<&'a str>,
    hosts: &'a str,
    database: Option<&'a str>,
    query: Vec<(&'a str, &'a str)>,
}

impl<'a> Parts<'a> {
    fn cut(url: &'a str) -> Result<Self, ServerTrouble> {
        let (scheme, rest) =
            url.split_once("://").ok_or_else(|| bad("the location begins like a URL and lacks its ://"))?;
        if !["postgresql", "postgres"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
            return Err(bad("the URL is neither postgresql:// nor postgres://"));
        }
        let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if tail.contains('@') {
            // As likely as not a password that holds a raw `/` or `?`; guessing would send parts of it elsewhere.
            return Err(bad(
                "an @ stands behind the host; a password's / is written %2F, its ? %3F, and an @ in a parameter %40",
            ));
        }
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            Some((user, password)) => (Some(user), Some(password)),
            None => (None, None),
        };
        let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
        let mut pairs = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            pairs.push(pair.split_once('=').ok_or_else(|| bad("a parameter has no ="))?);
        }
        let given = |part: Option<&'a str>| part.filter(|part| !part.is_empty());
        Ok(Self {
            user: given(user),
            password: given(password),
            hosts,
            database: given(path.strip_prefix('/')),
            query: pairs,
        })
    }

    /// The decoded parameters but those that the URL has places of their own for, with names that read as such.
    fn parameters(&self) -> Result<Parameters, ServerTrouble> {
        let mut parameters: Parameters = Vec::new();
        for (name, value) in &self.query {
            let name = decoded(name)?;
            if ["password", "user", "dbname"].contains(&&*name) {
                continue;
            }
            if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
                return Err(bad("a parameter's name is not made of small letters"));
            }
            take(&mut parameters, &name);
            parameters.push((name.into_owned(), decoded(value)?.into_owned()));
        }
        Ok(parameters)
    }

    fn parameter(&self, wanted: &str) -> Result<Option<&'a str>, ServerTrouble> {
        let mut found = None;
        for (name, value) in &self.query {
            if decoded(name)? == wanted {
                found = Some(*value).filter(|value| !value.is_empty());
            }
        }
        Ok(found)
    }

    fn password(&self) -> Result<Option<Vec<u8>>, ServerTrouble> {
        self.parameter("password")?.or(self.password).map(decoded_bytes).transpose()
    }

    fn user(&self) -> Result<Option<Cow<'a, str>>, ServerTrouble> {
        self.parameter("user")?.or(self.user).map(decoded).transpose()
    }

    fn database(&self) -> Result<Option<Cow<'a, str>>, ServerTrouble> {
        self.parameter("dbname")?.or(self.database).map(decoded).transpose()
    }

    /// The hosts of the URL, or of the parameters `host`, `hostaddr` and `port`, which go before.
    fn endpoints(&self, parameters: &mut Parameters) -> Result<Vec<Endpoint>, ServerTrouble> {
        let mut names: Vec<String> = Vec::new();
        let mut ports: Vec<String> = Vec::new();
        for place in self.hosts.split(',').filter(|_| !self.hosts.is_empty()) {
            let (name, port) = match place.strip_prefix('[') {
                Some(rest) => {
                    let (name, rest) = rest.split_once(']').ok_or_else(|| bad("a [ before a host has no ]"))?;
                    (name, rest.strip_prefix(':').or(rest.is_empty().then_some("")))
                }
                None => match place.split_once(':') {
                    Some((name, port)) => (name, Some(port)),
                    None => (place, Some("")),
                },
            };
            names.push(decoded(name)?.into_owned());
            ports.push(decoded(port.ok_or_else(|| bad("behind the ] of a host stands no port"))?)?.into_owned());
        }
        let list = |value: String| value.split(',').map(str::to_owned).collect::<Vec<_>>();
        names = take(parameters, "host").map_or(names, list);
        ports = take(parameters, "port").map_or(ports, list);
        let addresses = take(parameters, "hostaddr").map(list).unwrap_or_default();
        let count = names.len().max(addresses.len());
        if count == 0 || (names.iter().all(String::is_empty) && addresses.is_empty()) {
            return Err(bad("the URL names no host"));
        }
        if !(names.is_empty() || addresses.is_empty() || names.len() == addresses.len()) {
            return Err(bad("there are not as many hosts as there are values in hostaddr"));
        }
        if ports.len() > 1 && ports.len() != count {
            return Err(bad("there are not as many ports as hosts"));
        }
        let port_of = |index: usize| match ports.get(index).or(ports.first()).map(String::as_str) {
            None | Some("") => Ok(DEFAULT_PORT),
            Some(port) => port.parse::<u16>().map_err(|_| {
                bad("a port is not a number up to 65535; a password's : @ / ? % are written %3A %40 %2F %3F %25")
            }),
        };
        (0..count)
            .map(|index| {
                let name = names.get(index).cloned().unwrap_or_default();
                let address = match addresses.get(index).map(String::as_str) {
                    None | Some("") => None,
                    Some(text) => Some(text.parse::<IpAddr>().map_err(|_| bad("hostaddr holds what is no address"))?),
                };
                let host = match address {
                    None if name.starts_with('/') => Host::Unix(name.into()),
                    None if name.is_empty() => return Err(bad("a host is empty")),
                    Some(address) if name.is_empty() => Host::Tcp { name: address.to_string(), address: Some(address) },
                    address => Host::Tcp { name, address },
                };
                Ok(Endpoint { host, port: port_of(index)? })
            })
            .collect()
    }

    /// The URL as it was, without the password.
    fn shown(&self) -> Result<String, ServerTrouble> {
        let mut shown = String::from("postgresql://");
        if let Some(user) = self.user {
            shown.push_str(user);
            shown.push('@');
        }
        shown.push_str(self.hosts);
        if let Some(database) = self.database {
            shown.push('/');
            shown.push_str(database);
        }
        let mut mark = if self.database.is_none() { "/?" } else { "?" };
        for (name, value) in &self.query {
            if decoded(name)? != "password" {
                shown.push_str(&format!("{mark}{name}={value}"));
                mark = "&";
            }
        }
        // White space and control characters would break lines of logs, and nothing else shows a URL's end.
        let escape = |char: char| char.is_control() || char.is_whitespace();
        Ok(shown.chars().fold(String::new(), |mut text, char| {
            if escape(char) {
                let mut bytes = [0; 4];
                char.encode_utf8(&mut bytes).bytes().for_each(|byte| text.push_str(&format!("%{byte:02X}")));
            } else {
                text.push(char);
            }
            text
        }))
    }
}

fn decoded_bytes(raw: &str) -> Result<Vec<u8>, ServerTrouble> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        bytes.push(match byte {
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => (high * 16 + low) as u8,
                _ => return Err(bad("a % is not followed by two hexadecimal digits; a % itself is written %25")),
            },
            byte => byte,
        });
    }
    if bytes.contains(&0) {
        return Err(bad("a part holds the NUL character"));
    }
    Ok(bytes)
}

fn decoded(raw: &str) -> Result<Cow<'_, str>, ServerTrouble> {
    let bytes = decoded_bytes(raw)?;
    if !raw.contains('%') {
        return Ok(Cow::Borrowed(raw));
    }
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| bad("a part is not UTF-8 when decoded"))
}

#[cfg(test)]
#[path = "url_tests.rs"]
mod tests;
