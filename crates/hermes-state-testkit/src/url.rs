//! The parts of a server's URL that tests change: `postgresql://user:password@host:port/database?parameters`.

use std::fmt::Write;

/// Where the host and the port are in the URL.
fn authority(url: &str) -> Option<std::ops::Range<usize>> {
    let after_scheme = url.find("://")? + 3;
    let end = url[after_scheme..].find(['/', '?']).map_or(url.len(), |length| after_scheme + length);
    let start = url[after_scheme..end].rfind('@').map_or(after_scheme, |length| after_scheme + length + 1);
    Some(start..end)
}

/// The host and port that a URL names.
pub(crate) fn host_port(url: &str) -> (String, u16) {
    let authority = &url[authority(url).unwrap_or_else(|| panic!("no URL of a server: {url}"))];
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().expect("the port in the URL is a number")),
        _ => (authority, 5432),
    };
    assert!(!host.is_empty(), "tests need a URL with a host: {url}");
    (host.trim_matches(['[', ']']).to_owned(), port)
}

/// The same URL with another host and port.
pub(crate) fn with_host_port(url: &str, host: &str, port: u16) -> String {
    let authority = authority(url).unwrap_or_else(|| panic!("no URL of a server: {url}"));
    format!("{}{host}:{port}{}", &url[..authority.start], &url[authority.end..])
}

/// The same URL with one more parameter.
pub(crate) fn with_parameter(url: &str, name: &str, value: &str) -> String {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}{name}={}", escape(value))
}

/// A text as it may stand in any part of a URL.
pub(crate) fn escape(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            write!(escaped, "%{byte:02X}").expect("into a text");
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_and_replaced() {
        let url = "postgresql://me:p%40ss@db.example:6000/name?sslmode=require";
        assert_eq!(host_port(url), ("db.example".into(), 6000));
        assert_eq!(with_host_port(url, "127.0.0.1", 7), "postgresql://me:p%40ss@127.0.0.1:7/name?sslmode=require");
        assert_eq!(host_port("postgres://[::1]:6000"), ("::1".into(), 6000));
        assert_eq!(host_port("postgres://[::1]/x"), ("::1".into(), 5432));
        assert_eq!(with_host_port("postgres://host?a=b@c", "h", 1), "postgres://h:1?a=b@c");
    }

    #[test]
    fn parameters_are_added_whether_or_not_there_are_others() {
        assert_eq!(with_parameter("postgres://h/d", "schema", "a b"), "postgres://h/d?schema=a%20b");
        assert_eq!(with_parameter("postgres://h/d?x=y", "schema", "a"), "postgres://h/d?x=y&schema=a");
    }
}
