//! A real API server on etcd: nobody schedules, nobody controls, nodes are what the tests make them.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use gpu_quarantine::cluster::kubernetes;
use kube::Client;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell, OwnedMutexGuard};

use crate::process::{Process, eventually, free_port, in_path, required, unique};

const TOKEN: &str = "admin-of-the-tests";
const MISSING: &str = "tests against a real API server need kube-apiserver and etcd: set KUBEBUILDER_ASSETS to a directory that has both \
                       (setup-envtest fetches one)";

/// An API server with its store.
#[derive(Debug)]
pub(crate) struct ApiServer {
    program: PathBuf,
    args: Vec<String>,
    dir: PathBuf,
    port: u16,
    api: Option<Process>,
    // After the API server: its end removes the directory.
    _etcd: Process,
}

impl ApiServer {
    /// The one that tests share; nobody stops it. `None` if the programs are missing, which is said then.
    pub(crate) async fn shared() -> Option<&'static Self> {
        static SHARED: OnceCell<Option<ApiServer>> = OnceCell::const_new();
        SHARED.get_or_init(Self::start).await.as_ref()
    }

    /// The one that may be paused, killed and restarted, by one test at a time.
    pub(crate) async fn exclusive() -> Option<OwnedMutexGuard<Self>> {
        static EXCLUSIVE: OnceCell<Option<Arc<Mutex<ApiServer>>>> = OnceCell::const_new();
        let server = EXCLUSIVE.get_or_init(async || Some(Arc::new(Mutex::new(Self::start().await?)))).await.as_ref()?;
        let mut server = Arc::clone(server).lock_owned().await;
        // A test that failed may have left it in any state.
        if server.api.is_some() {
            server.resume();
        } else {
            server.restart().await;
        }
        Some(server)
    }

    /// Start one, and wait until it serves.
    pub(crate) async fn start() -> Option<Self> {
        // The first needs a controller manager; the second taints every new node until another controller finds it ready.
        Self::start_without("ServiceAccount,TaintNodesByCondition", |_| Vec::new()).await
    }

    /// Start one without these admission plugins and with further arguments, which may name files in its directory.
    pub(crate) async fn start_without(plugins: &str, more: impl FnOnce(&Path) -> Vec<String>) -> Option<Self> {
        let (program, etcd) = (required(server_program("kube-apiserver"), MISSING)?, required(server_program("etcd"), MISSING)?);
        // Statics are never dropped, so the directory is removed by what outlives us.
        let dir = tempfile::Builder::new().prefix("gpu-quarantine-").tempdir().expect("a temporary directory").keep();
        let (port, store, peer) = (free_port(), free_port(), free_port());
        let text = |path: &str| dir.join(path).display().to_string();
        write_credentials(&dir, port);
        let etcd_args = [
            format!("--data-dir={}", text("etcd")),
            format!("--listen-client-urls=http://127.0.0.1:{store}"),
            format!("--advertise-client-urls=http://127.0.0.1:{store}"),
            format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        let etcd = Process::start(&etcd, &etcd_args, &dir.join("etcd.log"), Some(&dir));
        let mut args = vec![
            format!("--etcd-servers=http://127.0.0.1:{store}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", text("made")),
            format!("--tls-cert-file={}", text("server.crt")),
            format!("--tls-private-key-file={}", text("server.key")),
            format!("--token-auth-file={}", text("tokens.csv")),
            format!("--service-account-key-file={}", text("sa.pub")),
            format!("--service-account-signing-key-file={}", text("sa.key")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/24".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            format!("--disable-admission-plugins={plugins}"),
        ];
        args.extend(more(&dir));
        let mut server = Self { program, args, dir, port, api: None, _etcd: etcd };
        server.restart().await;
        Some(server)
    }

    /// Start it on the same store and port, unless it runs, and wait until it serves.
    pub(crate) async fn restart(&mut self) {
        let log = self.dir.join("kube-apiserver.log");
        let api = self.api.get_or_insert_with(|| Process::start(&self.program, &self.args, &log, None));
        let client = client_of(&self.dir.join("kubeconfig")).await;
        let etcd_log = fs::read_to_string(self.dir.join("etcd.log")).unwrap_or_default();
        eventually("kube-apiserver serves", Duration::from_secs(90), async || {
            let request = http::Request::get("/readyz").body(Vec::new()).expect("a request");
            assert!(!api.has_ended(), "kube-apiserver ended by itself:\n{}", api.tail());
            client.request_text(request).await.map_err(|e| format!("{e}\n{}\netcd:\n{etcd_log}", api.tail()))
        })
        .await;
    }

    /// Kill it. Asked politely it would wait 60 s for watches to end.
    pub(crate) fn stop_hard(&mut self) {
        self.api = None;
    }

    /// Stop it from doing anything; its connections stay open.
    pub(crate) fn pause(&self) {
        self.api.as_ref().expect("it runs").signal("STOP");
    }

    /// Let it go on.
    pub(crate) fn resume(&self) {
        self.api.as_ref().expect("it runs").signal("CONT");
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Where it keeps what it writes; removed after its end.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A kubeconfig of its administrator.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// The same, by another port.
    pub(crate) fn kubeconfig_by(&self, port: u16) -> PathBuf {
        let file = self.dir.join(unique("kubeconfig"));
        fs::write(&file, kubeconfig(&self.dir, port)).expect("the directory is writable");
        file
    }

    /// The same, for a user, whom the administrator impersonates.
    pub(crate) fn kubeconfig_as(&self, user: &str) -> PathBuf {
        let file = self.dir.join(unique("kubeconfig"));
        let text =
            kubeconfig(&self.dir, self.port).replace(&format!("{{token: {TOKEN}}}"), &format!("{{token: {TOKEN}, as: {user}}}"));
        fs::write(&file, text).expect("the directory is writable");
        file
    }

    /// Give a user these rights, in all namespaces.
    pub(crate) async fn bind(&self, user: &str, rules: &Value) {
        let client = self.client().await;
        let create = async |kind: &str, mut object: Value| {
            object["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
            object["kind"] = json!(kind);
            object["metadata"] = json!({"name": user});
            let path = format!("/apis/rbac.authorization.k8s.io/v1/{}s", kind.to_lowercase());
            let request = http::Request::post(path).header("content-type", "application/json");
            let request = request.body(object.to_string().into_bytes()).expect("a request");
            client.request_text(request).await.expect("it is created");
        };
        create("ClusterRole", json!({"rules": rules})).await;
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user});
        let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user});
        create("ClusterRoleBinding", json!({"roleRef": role, "subjects": [subject]})).await;
    }

    /// A client of its administrator, for this test only: connections belong to the test's runtime.
    pub(crate) async fn client(&self) -> Client {
        client_of(&self.kubeconfig()).await
    }
}

/// A program of Kubernetes: in the directory that `KUBEBUILDER_ASSETS` names, else in the `PATH`.
pub(crate) fn server_program(name: &str) -> Option<PathBuf> {
    match std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) {
        Some(dir) => Some(dir.join(name)).filter(|file| file.is_file()),
        None => in_path(name),
    }
}

async fn client_of(kubeconfig: &Path) -> Client {
    let mut config = kubernetes::config(Some(kubeconfig), None).await.expect("the kubeconfig is right");
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    Client::try_from(config).expect("a client")
}

fn kubeconfig(dir: &Path, port: u16) -> String {
    let ca = dir.join("ca.crt");
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: t\n\
         clusters: [{{name: t, cluster: {{server: \"https://127.0.0.1:{port}\", certificate-authority: {:?}}}}}]\n\
         users: [{{name: t, user: {{token: {TOKEN}}}}}]\ncontexts: [{{name: t, context: {{cluster: t, user: t}}}}]\n",
        ca.display().to_string()
    )
}

/// A certificate authority, the server's certificate, a key for tokens, the administrator's token and kubeconfig.
fn write_credentials(dir: &Path, port: u16) {
    let write = |name: &str, text: String| fs::write(dir.join(name), text).expect("the directory is writable");
    let key = || KeyPair::generate().expect("a key");
    let mut ca = CertificateParams::default();
    ca.distinguished_name.push(DnType::CommonName, "tests");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let ca_key = key();
    write("ca.crt", ca.self_signed(&ca_key).expect("a certificate").pem());
    let names = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let mut server = CertificateParams::new(names.map(str::to_owned)).expect("the names are good");
    server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let server_key = key();
    let issuer = Issuer::new(ca, ca_key);
    write("server.crt", server.signed_by(&server_key, &issuer).expect("a certificate").pem());
    write("server.key", server_key.serialize_pem());
    let tokens = key();
    write("sa.key", tokens.serialize_pem());
    write("sa.pub", tokens.public_key_pem());
    write("tokens.csv", format!("{TOKEN},admin,admin,system:masters\n"));
    write("kubeconfig", kubeconfig(dir, port));
}
