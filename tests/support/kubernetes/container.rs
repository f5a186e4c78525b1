//! A pod as a process of this machine.

use std::path::Path;

use k8s_openapi::api::core::v1::{EnvVar, Pod};
use kube::ResourceExt;

use crate::process::{Process, in_path};

/// The process of a pod's first container.
#[derive(Debug)]
pub(crate) struct Container {
    process: Process,
}

impl Container {
    /// Start its command with its environment; its log is `<pod>.log` in `logs`.
    pub(crate) fn start(pod: &Pod, node: &str, logs: &Path) -> Self {
        let container = pod.spec.iter().flat_map(|spec| &spec.containers).next().expect("a pod has containers");
        let variables =
            container.env.iter().flatten().map(|variable| format!("{}={}", variable.name, value(variable, pod, node)));
        let command = container.command.iter().chain(&container.args).flatten().cloned();
        let args: Vec<String> = variables.chain(command).collect();
        // It replaces itself by the command, so that the process is the command's.
        let env = in_path("env").expect("every system has env");
        Self { process: Process::start(&env, &args, &logs.join(format!("{}.log", pod.name_any())), None) }
    }

    /// Send a signal by name; whether it still ran.
    pub(crate) fn signal(&self, name: &str) -> bool {
        self.process.try_signal(name)
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.process.has_ended()
    }

    /// Kill it if it still runs; its exit code.
    pub(crate) fn end(&mut self) -> i32 {
        self.process.end()
    }

    /// The end of its log.
    pub(crate) fn tail(&self) -> String {
        self.process.tail()
    }
}

/// The value of a variable: a text, or one of the fields that tell a pod who it is.
fn value(variable: &EnvVar, pod: &Pod, node: &str) -> String {
    let field = variable.value_from.as_ref().and_then(|from| from.field_ref.as_ref()).map(|field| field.field_path.as_str());
    match field {
        None => variable.value.clone().unwrap_or_default(),
        Some("metadata.name") => pod.name_any(),
        Some("metadata.uid") => pod.uid().unwrap_or_default(),
        Some("spec.nodeName") => node.to_owned(),
        Some(other) => panic!("the test kubelet does not know the field {other}"),
    }
}
