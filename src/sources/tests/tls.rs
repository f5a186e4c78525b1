//! TLS with an authority of our own.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use tempfile::TempDir;

use super::{
    configured, pull_of,
    server::{Server, alertmanager},
};

/// An authority, with the certificate of a server for `am.test` and that of a client, as files.
struct Authority {
    dir: TempDir,
}

impl Authority {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(dir.path().join("ca.crt"), ca.pem()).unwrap();
        for (name, host) in [("server", "am.test"), ("client", "gpu-quarantine")] {
            let key = KeyPair::generate().unwrap();
            let cert = CertificateParams::new([host.to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
            std::fs::write(dir.path().join(format!("{name}.crt")), cert.pem()).unwrap();
            std::fs::write(dir.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        Self { dir }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A server that asks for a certificate of this authority, if `mutual`.
    async fn serve(&self, mutual: bool) -> Server {
        let provider = std::sync::Arc::new(aws_lc_rs::default_provider());
        let builder =
            ServerConfig::builder_with_provider(std::sync::Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
        let builder = if mutual {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(self.file("ca.crt")).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let chain = vec![CertificateDer::from_pem_file(self.file("server.crt")).unwrap()];
        let key = PrivateKeyDer::from_pem_file(self.file("server.key")).unwrap();
        Server::start(Some(builder.with_single_cert(chain, key).unwrap()), |path| Some(alertmanager(path, "[]"))).await
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

async fn ask(server: &Server, tls_config: &str) -> Option<String> {
    let port = server.address.port();
    pull_of(configured(&format!("urls: ['https://127.0.0.1:{port}']"), &format!("tls_config: {{{tls_config}}}"))).await.incomplete
}

#[tokio::test]
async fn a_server_of_our_own_authority_is_trusted_by_its_name_and_given_our_certificate() {
    let authority = Authority::new();
    let server = authority.serve(true).await;
    let ca = shown(&authority.file("ca.crt"));
    let (cert, key) = (shown(&authority.file("client.crt")), shown(&authority.file("client.key")));
    let full = format!("ca_file: {ca}, cert_file: {cert}, key_file: {key}, server_name: am.test");
    assert_eq!(ask(&server, &full).await, None);

    let without = ask(&server, &format!("ca_file: {ca}, server_name: am.test")).await.unwrap();
    assert!(without.contains("cannot reach https://127.0.0.1") && without.contains("tls_config"), "{without}");

    // Rotated to something else: used at the next pull.
    std::fs::write(authority.file("client.key"), "no key").unwrap();
    let broken = ask(&server, &full).await.unwrap();
    assert!(broken.contains("cannot use the key_file") && !broken.contains("no key\n"), "{broken}");
}

#[tokio::test]
async fn a_server_of_another_authority_or_name_is_refused_unless_told_otherwise() {
    let authority = Authority::new();
    let server = authority.serve(false).await;
    let (own, other) = (shown(&authority.file("ca.crt")), Authority::new());
    let wrong = ask(&server, &format!("ca_file: {}, server_name: am.test", shown(&other.file("ca.crt")))).await.unwrap();
    assert!(wrong.contains("invalid peer certificate"), "{wrong}");
    let name = ask(&server, &format!("ca_file: {own}")).await.unwrap();
    assert!(name.contains("not valid for name"), "{name}");
    assert_eq!(ask(&server, "insecure_skip_verify: true").await, None);
}

#[tokio::test]
async fn a_certificate_behind_a_name_is_checked_for_that_name() {
    let authority = Authority::new();
    let server = authority.serve(false).await;
    let dns = format!("dns: {{name: '127.0.0.1:{}', scheme: https}}", server.address.port());
    let tls = format!("ca_file: {}", shown(&authority.file("ca.crt")));
    let wrong = pull_of(configured(&dns, &format!("tls_config: {{{tls}}}"))).await.incomplete.unwrap();
    assert!(wrong.contains("not valid for name"), "{wrong}");
    assert_eq!(pull_of(configured(&dns, &format!("tls_config: {{{tls}, server_name: am.test}}"))).await.incomplete, None);
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named_and_nobody_is_asked() {
    let authority = Authority::new();
    let server = authority.serve(false).await;
    for (file, why) in [("missing.crt", "No such file"), ("server.key", "nothing of that kind is in it")] {
        let reason = ask(&server, &format!("ca_file: {}", shown(&authority.file(file)))).await.unwrap();
        assert!(reason.contains("cannot use the ca_file") && reason.contains(why), "{reason}");
    }
    assert!(server.asked().is_empty());
}
