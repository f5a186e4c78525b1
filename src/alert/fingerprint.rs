//! The identity of a label set, as Prometheus and Alertmanager compute it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::Labels;

/// FNV-1a over all labels, shown as 16 hex digits. Equal for the same alert on every Alertmanager peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint(u64);

/// A text that is not a fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint is 16 hexadecimal digits")]
pub struct FingerprintError;

impl Fingerprint {
    /// The fingerprint of a label set: FNV-1a over name, 0xff, value, 0xff in the order of the names
    /// (`labelSetToFingerprint` of prometheus/common's `model/signature.go`).
    #[must_use]
    pub fn of(labels: &Labels) -> Self {
        const OFFSET: u64 = 14_695_981_039_346_656_037;
        const PRIME: u64 = 1_099_511_628_211;
        let mut sum = OFFSET;
        let mut add = |bytes: &[u8]| {
            for byte in bytes {
                sum = (sum ^ u64::from(*byte)).wrapping_mul(PRIME);
            }
        };
        for (name, value) in labels.iter() {
            add(name.as_bytes());
            add(&[0xff]);
            add(value.as_bytes());
            add(&[0xff]);
        }
        Self(sum)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;
    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        // from_str_radix would take a sign.
        if text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
            u64::from_str_radix(text, 16).map(Self).map_err(|_| FingerprintError)
        } else {
            Err(FingerprintError)
        }
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = FingerprintError;
    fn try_from(text: String) -> Result<Self, FingerprintError> {
        text.parse()
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::parse_body;

    #[test]
    fn a_computed_fingerprint_equals_the_one_that_alertmanager_sent() {
        let body = include_bytes!("../../fixtures/payloads/02-firing-grouped.json");
        let delivery = parse_body(body).unwrap();
        assert_eq!(delivery.alerts.len(), 4);
        for alert in delivery.alerts {
            let alert = alert.unwrap();
            assert_eq!(Fingerprint::of(&alert.labels), alert.fingerprint);
        }
    }

    #[test]
    fn a_fingerprint_is_sixteen_hexadecimal_digits_and_nothing_else() {
        assert_eq!("17ca147fb85cd638".parse::<Fingerprint>().unwrap().to_string(), "17ca147fb85cd638");
        for bad in ["", "17ca", "+7ca147fb85cd638", "17ca147fb85cd63g", "17ca147fb85cd6380"] {
            assert_eq!(bad.parse::<Fingerprint>(), Err(FingerprintError), "{bad}");
        }
    }
}
