//! Encryption of a connection as `sslmode` asks for it.
//!
//! The meanings are libpq's: `prefer` and `require` encrypt without asking who answers, unless `require` comes with
//! `sslrootcert`; `verify-ca` and `verify-full` take the host's own roots if no file is named. Two things differ,
//! because the verifier is rustls's: a host name is looked for among the certificate's alternative names only, and a
//! certificate must be of X.509 version 3.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::Socket;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::url::{Address, Roots, SslMode};
use crate::error::ServerTrouble;

/// How far an attempt to connect has come, so that its error can be told from others of the same kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Phase {
    /// There is no connection.
    Calling,
    /// The server has taken the connection.
    Connected,
    /// The server has agreed to encrypt.
    Handshake,
    /// The connection is encrypted.
    Encrypted,
}

/// Encrypts connections, and keeps how far the latest has come.
#[derive(Clone)]
pub(crate) struct Connector {
    inner: MakeRustlsConnect,
    phase: Arc<AtomicU8>,
}

impl Connector {
    /// The connector for an address.
    ///
    /// # Errors
    ///
    /// [`ServerTrouble::Tls`] if the roots cannot be read.
    pub(crate) fn new(address: &Address) -> Result<Self, ServerTrouble> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = match (address.ssl_mode(), address.roots()) {
            (SslMode::Disable | SslMode::Prefer, _) | (SslMode::Require, None) => {
                Arc::new(Unverified(provider.clone()))
            }
            (SslMode::Require | SslMode::VerifyCa, roots) => Arc::new(Verified::new(roots, false, &provider)?),
            (SslMode::VerifyFull, roots) => Arc::new(Verified::new(roots, true, &provider)?),
        };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| ServerTrouble::Tls(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        // What sslnegotiation=direct must announce, and what libpq announces in every case.
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Self { inner: MakeRustlsConnect::new(config), phase: Arc::default() })
    }

    /// Forgets the attempt before.
    pub(super) fn begin(&self) {
        self.phase.store(Phase::Calling as u8, Ordering::Relaxed);
    }

    /// How far the attempt has come.
    pub(super) fn phase(&self) -> Phase {
        let phase = self.phase.load(Ordering::Relaxed);
        [Phase::Calling, Phase::Connected, Phase::Handshake, Phase::Encrypted]
            .into_iter()
            .find(|known| *known as u8 == phase)
            .unwrap_or(Phase::Calling)
    }
}

type Inner = <MakeRustlsConnect as MakeTlsConnect<Socket>>::TlsConnect;
type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// One handshake of a [`Connector`].
pub(crate) struct Handshake {
    inner: Inner,
    phase: Arc<AtomicU8>,
}

impl MakeTlsConnect<Socket> for Connector {
    type Stream = Stream;
    type TlsConnect = Handshake;
    type Error = std::convert::Infallible;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, Self::Error> {
        let inner = MakeTlsConnect::<Socket>::make_tls_connect(&mut self.inner, host)?;
        self.phase.store(Phase::Connected as u8, Ordering::Relaxed);
        Ok(Handshake { inner, phase: self.phase.clone() })
    }
}

impl TlsConnect<Socket> for Handshake {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        self.phase.store(Phase::Handshake as u8, Ordering::Relaxed);
        let connecting = self.inner.connect(socket);
        Box::pin(async move {
            let stream = connecting.await?;
            self.phase.store(Phase::Encrypted as u8, Ordering::Relaxed);
            Ok(stream)
        })
    }
}

fn roots(from: Option<&Roots>) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), ServerTrouble> {
    let mut store = RootCertStore::empty();
    let Some(Roots::File(path)) = from else {
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if store.is_empty() {
            return Err(ServerTrouble::Tls("this host has no root certificates".to_owned()));
        }
        return Ok((store, Vec::new()));
    };
    let failed = |what: String| ServerTrouble::Tls(format!("sslrootcert {}: {what}", path.display()));
    #[expect(clippy::disallowed_methods, reason = "the user names it as a file of certificates, not a store's file")]
    let pem = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let pinned = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| failed(format!("it does not read as PEM: {error}")))?;
    if pinned.is_empty() {
        return Err(failed("it holds no certificate".to_owned()));
    }
    store.add_parsable_certificates(pinned.iter().cloned());
    Ok((store, pinned))
}

/// Verifies the certificate, and its name if that is asked for.
///
/// A server that uses the very certificate that `sslrootcert` holds is trusted: the PostgreSQL documentation's
/// self-signed set-up, which webpki refuses as a server's because it is marked as an authority's.
#[derive(Debug)]
struct Verified {
    chain: Option<Arc<WebPkiServerVerifier>>,
    pinned: Vec<CertificateDer<'static>>,
    name: bool,
    signatures: Unverified,
}

impl Verified {
    fn new(from: Option<&Roots>, name: bool, provider: &Arc<CryptoProvider>) -> Result<Self, ServerTrouble> {
        let (store, pinned) = roots(from)?;
        let chain = match store.is_empty() {
            true => None,
            false => Some(
                WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone())
                    .build()
                    .map_err(|error| ServerTrouble::Tls(error.to_string()))?,
            ),
        };
        Ok(Self { chain, pinned, name, signatures: Unverified(provider.clone()) })
    }

    fn verify_chain(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        if self.pinned.iter().any(|pinned| pinned == end_entity) {
            return Ok(());
        }
        let chain = self.chain.as_ref().ok_or(CertificateError::UnknownIssuer)?;
        match chain.verify_server_cert(end_entity, intermediates, name, &[], now) {
            // The chain is verified before the name, so that this error means that the chain is good.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(()),
            outcome => outcome.map(drop),
        }
    }
}

impl ServerCertVerifier for Verified {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verify_chain(end_entity, intermediates, server_name, now)?;
        if self.name {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.supported_verify_schemes()
    }
}

/// Takes any certificate, as libpq does for `prefer` and for `require` without roots: it keeps out those who listen,
/// not those who stand between.
///
/// The handshake's signature is verified all the same: SCRAM's channel binding says who answers by the certificate, and
/// that is worth something only if whoever shows the certificate has its key.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
