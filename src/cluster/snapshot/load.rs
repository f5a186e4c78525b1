//! A cluster file: a stream of YAML documents as `kubectl get nodes,pods -A -o yaml` prints them. JSON is YAML, so `-o json`
//! is read as well.

use std::fmt;

use serde_json::{Value, json};

/// More text than this is refused: 2,000 nodes of 20 kB are 40 MiB.
const TEXT_MAX: usize = 256 * 1024 * 1024;

/// etcd counts revisions in an int64.
const VERSION_MAX: u64 = i64::MAX as u64;

/// A cluster file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// More text than we are willing to parse.
    #[error("{file}: {bytes} bytes are too many for a cluster file; at most {TEXT_MAX} are read")]
    TooLarge {
        /// The file.
        file: String,
        /// Its size.
        bytes: usize,
    },
    /// Not YAML, or YAML with aliases, which are not read.
    #[error("{file}:{line}:{column}: {message}")]
    Syntax {
        /// The file.
        file: String,
        /// From 1; 0 if the parser does not know.
        line: u64,
        /// From 1; 0 if the parser does not know.
        column: u64,
        /// What the parser says, with the lines around it.
        message: String,
    },
    /// An object that cannot be used.
    #[error("{file}: {place}: {problem}")]
    Object {
        /// The file.
        file: String,
        /// Where in it.
        place: Place,
        /// What is wrong.
        problem: String,
    },
    /// A cluster without a node.
    #[error("{file}: no Node in it")]
    NoNodes {
        /// The file.
        file: String,
    },
}

/// Where an object stands in a cluster file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Which document, from 1. Documents that hold nothing are not counted.
    pub document: usize,
    /// Which item of the document's list, from 1.
    pub item: Option<usize>,
    /// Kind and name, as far as they can be read.
    pub object: Option<String>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "document {}", self.document)?;
        if let Some(item) = self.item {
            write!(f, ", item {item}")?;
        }
        match &self.object {
            Some(object) => write!(f, " ({object})"),
            None => Ok(()),
        }
    }
}

/// The kinds that a snapshot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Node,
    Pod,
}

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Pod => "Pod",
        }
    }
}

/// One object of the file.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) place: Place,
    pub(super) kind: Kind,
    pub(super) raw: Value,
}

/// The objects of a file, each with `apiVersion` and `kind`, lists taken apart.
pub(super) fn objects(file: &str, text: &str) -> Result<Vec<Found>, LoadError> {
    let mut found = Vec::new();
    for (index, document) in documents(file, text)?.into_iter().enumerate() {
        let place = Place { document: index + 1, item: None, object: label(&document) };
        let error = |place: Place, problem: String| LoadError::Object { file: file.to_owned(), place, problem };
        let implied = match document.get("kind").and_then(Value::as_str) {
            Some("List") => None,
            Some("NodeList") => Some(Kind::Node),
            Some("PodList") => Some(Kind::Pod),
            _ => {
                let (kind, raw) = typed(document, None).map_err(|problem| error(place.clone(), problem))?;
                found.push(Found { place, kind, raw });
                continue;
            }
        };
        let items = match document {
            Value::Object(mut list) => list.remove("items").unwrap_or_default(),
            _ => Value::Null,
        };
        let items = match items {
            Value::Array(items) => items,
            Value::Null => Vec::new(),
            _ => return Err(error(place, "items is not a list".to_owned())),
        };
        for (index, item) in items.into_iter().enumerate() {
            let mut place = Place { item: Some(index + 1), object: label(&item), ..place };
            let (kind, raw) = typed(item, implied).map_err(|problem| error(place.clone(), problem))?;
            // The items of a typed list may lack their kind.
            place.object = label(&raw);
            found.push(Found { place, kind, raw });
        }
    }
    Ok(found)
}

fn documents(file: &str, text: &str) -> Result<Vec<Value>, LoadError> {
    if text.len() > TEXT_MAX {
        return Err(LoadError::TooLarge { file: file.to_owned(), bytes: text.len() });
    }
    // The parser's own budget is for configurations: 250,000 nodes of YAML, where 2,000 Nodes are 5 million. What has no alias
    // is never larger than its text, which is bounded above, and kubectl writes none.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_aliases: 0,
            max_documents: TEXT_MAX,
            max_events: TEXT_MAX,
            max_nodes: TEXT_MAX,
            max_total_scalar_bytes: TEXT_MAX,
        },
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
        // The other formatter speaks to programmers of options to set.
        let options = serde_saphyr::render_options! { formatter: &serde_saphyr::UserMessageFormatter, source_name: Some(file) };
        let message = error.render_with_options(options);
        let message = message.strip_prefix(&format!("error: line {line} column {column}: ")).unwrap_or(&message).to_owned();
        LoadError::Syntax { file: file.to_owned(), line, column, message }
    })
}

/// The object with its `apiVersion` and `kind`, which are `implied` by a typed list. Errors if it is not one that we understand.
pub(super) fn typed(mut raw: Value, implied: Option<Kind>) -> Result<(Kind, Value), String> {
    let Value::Object(fields) = &mut raw else {
        return Err("not a map; only Node, Pod and List are understood".to_owned());
    };
    let stated = fields.get("kind").filter(|kind| !kind.is_null()).map(|kind| kind.as_str().unwrap_or_default());
    let kind = match (stated, implied) {
        (None, Some(kind)) => kind,
        (Some("Node"), None | Some(Kind::Node)) => Kind::Node,
        (Some("Pod"), None | Some(Kind::Pod)) => Kind::Pod,
        (Some(_), Some(kind)) => return Err(format!("an item of a {}List of another kind", kind.as_str())),
        (_, None) => return Err("only Node, Pod and List are understood".to_owned()),
    };
    if !matches!(fields.get("apiVersion").unwrap_or(&Value::Null), Value::Null | Value::String(_)) {
        return Err("apiVersion is not a string".to_owned());
    }
    // Other groups have kinds of the same name, `config.openshift.io/v1` a Node for one.
    match fields.get("apiVersion").and_then(Value::as_str) {
        None | Some("v1") => {}
        Some(other) => return Err(format!("apiVersion is {other:?}; only Node, Pod and List of \"v1\" are understood")),
    }
    fields.insert("apiVersion".to_owned(), json!("v1"));
    fields.insert("kind".to_owned(), json!(kind.as_str()));
    Ok((kind, raw))
}

/// Kind and name for a message.
fn label(raw: &Value) -> Option<String> {
    let kind = raw.get("kind")?.as_str()?;
    let text = |path| raw.pointer(path).and_then(Value::as_str);
    let label = match (text("/metadata/namespace"), text("/metadata/name")) {
        (Some(namespace), Some(name)) => format!("{kind} {namespace}/{name}"),
        (None, Some(name)) => format!("{kind} {name}"),
        (_, None) => format!("{kind} without a name"),
    };
    Some(label)
}

/// The resourceVersion as a number; `None` if there is none. Errors if it is no revision of etcd, which is a decimal number
/// (KEP-5504): the versions that we give out must be greater.
pub(super) fn version(raw: &Value) -> Result<Option<u64>, String> {
    match raw.pointer("/metadata/resourceVersion") {
        None | Some(Value::Null) => Ok(None),
        // The wrong type is told with the facts.
        Some(Value::String(text)) => match text.parse() {
            Ok(version) if version <= VERSION_MAX && !text.starts_with('+') => Ok(Some(version)),
            _ => Err(format!("metadata.resourceVersion is {text:?}; expected a decimal number of at most 63 bits, in quotes")),
        },
        Some(_) => Ok(Some(0)),
    }
}

/// A UID in the form of a UUID, for an object that has none: the same for the same kind, name and `birth`, so that the same file
/// gives the same output.
pub(super) fn uid(kind: Kind, namespace: &str, name: &str, birth: u64) -> String {
    let seed = format!("{}/{namespace}/{name}/{birth}", kind.as_str());
    let (high, low) = (fnv1a(&format!("high/{seed}")), fnv1a(&format!("low/{seed}")));
    // Version 8 (RFC 9562: vendor's own) and the variant of the RFC.
    let (third, fourth) = (high & 0xfff | 0x8000, low >> 48 & 0x3fff | 0x8000);
    format!("{:08x}-{:04x}-{third:04x}-{fourth:04x}-{:012x}", high >> 32, high >> 16 & 0xffff, low & 0xffff_ffff_ffff)
}

/// FNV-1a, 64 bits: no security needed, only the same on every machine.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_derived_uid_has_the_form_of_a_uuid_and_differs_by_what_it_is_derived_from() {
        let one = uid(Kind::Node, "", "gpu-07", 0);
        assert_eq!(one, uid(Kind::Node, "", "gpu-07", 0));
        let lengths: Vec<_> = one.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{one}");
        assert_eq!(&one[14..15], "8");
        for other in [uid(Kind::Node, "", "gpu-08", 0), uid(Kind::Node, "", "gpu-07", 1), uid(Kind::Pod, "", "gpu-07", 0)] {
            assert_ne!(one, other);
        }
        assert_eq!(fnv1a("foobar"), 0x8594_4171_f739_67e8, "the vector of the FNV draft");
    }
}
