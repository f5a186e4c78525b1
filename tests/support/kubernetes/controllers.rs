//! An API server with those that act on it: the controller manager and the scheduler of Kubernetes. Nobody but a test kubelet runs
//! pods, and nobody asks nodes for heartbeats.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tokio::{net::TcpStream, sync::OnceCell};

use crate::{
    harness::{ApiServer, server_program},
    process::{Process, eventually, free_port, required},
};

const MISSING: &str = "tests of eviction need kube-controller-manager and kube-scheduler beside kube-apiserver and etcd: in the \
                       directory that KUBEBUILDER_ASSETS names, or in the PATH without it";

/// Those that make, remove and count pods. `nodelifecycle` is not among them: it would empty nodes that send no heartbeats.
const CONTROLLERS: &str = "job,replicaset,deployment,statefulset,daemonset,disruption,garbagecollector,podgc";

/// Who asked for pods to be evicted or deleted, and what was answered.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Request, verbs: [create], resources: [{group: '', resources: [pods/eviction]}]}
  - {level: Request, verbs: [delete, deletecollection], resources: [{group: '', resources: [pods]}]}
  - {level: None}
";

/// An API server on which Jobs, DaemonSets and disruption budgets work and pods are scheduled.
#[derive(Debug)]
pub(crate) struct Controlled {
    pub(crate) api: ApiServer,
    _manager: Process,
    _scheduler: Process,
}

impl Controlled {
    /// The one that tests share; nobody stops it. `None` if programs are missing, which is said then.
    pub(crate) async fn shared() -> Option<&'static Self> {
        static SHARED: OnceCell<Option<Controlled>> = OnceCell::const_new();
        SHARED.get_or_init(Self::start).await.as_ref()
    }

    async fn start() -> Option<Self> {
        let find = |name| required(server_program(name), MISSING);
        let (manager, scheduler): (PathBuf, PathBuf) = (find("kube-controller-manager")?, find("kube-scheduler")?);
        let audit = |dir: &Path| {
            let (policy, log) = (dir.join("audit-policy.yaml"), audit_log(dir));
            fs::write(&policy, AUDIT_POLICY).expect("the directory is writable");
            vec![
                format!("--audit-policy-file={}", policy.display()),
                format!("--audit-log-path={}", log.display()),
                // Written before the answer is sent.
                "--audit-log-mode=blocking".to_owned(),
            ]
        };
        // Pods get no tokens, which nobody here would use. New nodes are tainted as not ready, which the test kubelet ends.
        let api = ApiServer::start_without("ServiceAccount", audit).await?;
        // The defaults are made for clusters where hundreds of others ask as well.
        let more = [format!("--controllers={CONTROLLERS}"), "--kube-api-qps=200".to_owned(), "--kube-api-burst=400".to_owned()];
        let manager = launch(&api, "kube-controller-manager", &manager, &more).await;
        let scheduler = launch(&api, "kube-scheduler", &scheduler, &[]).await;
        Some(Self { api, _manager: manager, _scheduler: scheduler })
    }

    /// Its audit log.
    pub(crate) fn audit_log(&self) -> PathBuf {
        audit_log(self.api.dir())
    }
}

fn audit_log(dir: &Path) -> PathBuf {
    dir.join("audit.log")
}

/// Start one of them with the administrator's rights, and wait until it listens.
async fn launch(api: &ApiServer, name: &str, program: &Path, more: &[String]) -> Process {
    let port = free_port();
    let mut args = vec![
        format!("--kubeconfig={}", api.kubeconfig().display()),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", api.dir().join(name).display()),
        "--leader-elect=false".to_owned(),
    ];
    args.extend_from_slice(more);
    // Before 1.24 they also listen without TLS, on a port that others may have.
    let help = Command::new(program).arg("--help").output().expect("it can be started");
    if String::from_utf8_lossy(&help.stdout).lines().any(|line| line.trim_start().starts_with("--port int")) {
        args.push("--port=0".to_owned());
    }
    let process = Process::start(program, &args, &api.dir().join(format!("{name}.log")), None);
    eventually(&format!("{name} listens"), Duration::from_secs(90), async || {
        assert!(!process.has_ended(), "{name} ended by itself:\n{}", process.tail());
        TcpStream::connect(("127.0.0.1", port)).await.map_err(|e| format!("{e}\n{}", process.tail()))
    })
    .await;
    process
}
