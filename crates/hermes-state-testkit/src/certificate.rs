//! Certificates for a server, made with the `openssl` program.
//!
//! An authority and a certificate that it signed, because strict clients refuse an authority's own as a server's.

use std::path::Path;
use std::process::Command;

use crate::account::Account;

/// The file with the authority that clients are to trust.
pub(crate) const AUTHORITY: &str = "authority.crt";

const CONFIG: &str = "\
[req]
prompt = no
distinguished_name = name
[name]
CN = hermes-state-testkit
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost, IP:127.0.0.1
";

/// Writes `server.crt`, `server.key` and the authority's certificate into the folder, as the server's account: it refuses
/// a key that is another's.
pub(crate) fn make(folder: &Path, account: Option<Account>) {
    let config = folder.join("openssl.cnf");
    #[expect(clippy::disallowed_methods, reason = "a text file in the server's temporary folder")]
    std::fs::write(&config, CONFIG).expect("the temporary folder can be written");
    if let Some(account) = account {
        account.own(&config);
    }
    let openssl = |arguments: &str| {
        let mut command = Command::new("openssl");
        command.args(arguments.split(' '));
        if let Some(account) = account {
            account.run(&mut command);
        }
        let output = command
            .current_dir(folder)
            .output()
            .unwrap_or_else(|error| panic!("TLS needs the program openssl (Debian: apt-get install openssl): {error}"));
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -config openssl.cnf";
    openssl(&format!("req -x509 -days 3650 {new_key} -extensions authority -keyout authority.key -out {AUTHORITY}"));
    openssl(&format!("req -new {new_key} -keyout server.key -out server.csr"));
    openssl(&format!(
        "x509 -req -in server.csr -days 3650 -CA {AUTHORITY} -CAkey authority.key -CAcreateserial \
         -extfile openssl.cnf -extensions server -out server.crt"
    ));
}
