//! Certificates, and servers that show them.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::sync::Arc;

/// A certificate authority.
pub(crate) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

impl Ca {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        // The same for all, as a CA that is renewed keeps its name.
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "kvgauge tests");
        let certificate = params.self_signed(&key).unwrap();
        Self {
            pem: certificate.pem(),
            der: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        }
    }

    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// A server with a certificate for these names or addresses.
    pub(crate) fn server(&self, names: &[&str]) -> Arc<ServerConfig> {
        self.server_with(&params(names))
    }

    /// One whose certificate was valid in 2020.
    pub(crate) fn expired(&self, names: &[&str]) -> Arc<ServerConfig> {
        self.server_with(&in_2020(names))
    }

    fn server_with(&self, params: &CertificateParams) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Arc::new(server(certificate.der().clone(), &key))
    }

    /// One that wants a client's certificate.
    pub(crate) fn server_for_clients(&self, names: &[&str]) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let certificate = params(names).signed_by(&key, &self.issuer).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients.build().unwrap())
            .with_single_cert(vec![certificate.der().clone()], private(&key))
            .unwrap();
        Arc::new(config)
    }
}

/// The same server, with TLS 1.2 alone.
pub(crate) fn tls12_only(server: &ServerConfig) -> Arc<ServerConfig> {
    let provider = Arc::clone(server.crypto_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::clone(&server.cert_resolver));
    config.alpn_protocols.clone_from(&server.alpn_protocols);
    Arc::new(config)
}

/// What `openssl req -x509` makes: a certificate that signs itself and calls itself a CA's.
pub(crate) fn self_signed(names: &[&str]) -> (String, Arc<ServerConfig>) {
    of_itself(params(names))
}

/// The same, valid in 2020.
pub(crate) fn self_signed_expired(names: &[&str]) -> (String, Arc<ServerConfig>) {
    of_itself(in_2020(names))
}

fn of_itself(mut params: CertificateParams) -> (String, Arc<ServerConfig>) {
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let config = server(certificate.der().clone(), &key);
    (certificate.pem(), Arc::new(config))
}

/// The same server, with HTTP/2 alone.
pub(crate) fn http2_only(server: &ServerConfig) -> Arc<ServerConfig> {
    let mut config = server.clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    CertificateParams::new(names).unwrap()
}

fn in_2020(names: &[&str]) -> CertificateParams {
    let mut params = params(names);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2020, 12, 31);
    params
}

fn private(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivateKeyDer::try_from(key.serialize_der()).unwrap()
}

fn server(certificate: CertificateDer<'static>, key: &KeyPair) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], private(key))
        .unwrap();
    // As uvicorn, which names HTTP/1.1 alone.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}
