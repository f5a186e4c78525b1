//! Seeded random damage to bytes: the same seed always gives the same damage, so a failure can be run again.

/// Damages inputs. Each call to [`Mutator::mutate`] starts from the original, with one to four random changes.
pub(crate) struct Mutator {
    state: u64,
}

/// What is spliced in besides bytes of the input: pieces that mean something to YAML, JSON, matchers or selectors.
const TOKENS: [&[u8]; 32] = [
    b"\n",
    b"\r",
    b"\t",
    b" ",
    b"---\n",
    b"...",
    b"~",
    b"null",
    b"[]",
    b"{}",
    b"[",
    b"{",
    b"]",
    b"}",
    b"&a ",
    b"*a",
    b"<<: ",
    b"!!binary ",
    b"|\n",
    b"'",
    b"\"",
    b"\\",
    b"=~",
    b"(",
    b"#",
    b"%",
    b"-1",
    b"1e999",
    b"\0",
    "é".as_bytes(),
    "😀".as_bytes(),
    b"\xff\xfe",
];

impl Mutator {
    /// The same seed gives the same sequence of damage.
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbouring seeds must not begin alike, and xorshift must not begin with 0.
        Self { state: seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 }
    }

    /// A number below `limit`; 0 if `limit` is 0.
    fn below(&mut self, limit: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let high = usize::try_from(self.state >> 33).unwrap_or_default();
        if limit == 0 { 0 } else { high % limit }
    }

    /// A damaged copy; most likely no longer valid, perhaps no longer UTF-8.
    pub(crate) fn mutate(&mut self, input: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(4) {
            self.damage(&mut bytes);
        }
        bytes
    }

    fn damage(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len() + 1);
        match self.below(8) {
            0 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << self.below(8);
                }
            }
            1 => {
                let end = (at + 1 + self.below(16)).min(bytes.len());
                bytes.drain(at.min(end)..end);
            }
            2 => {
                let token = TOKENS[self.below(TOKENS.len())];
                bytes.splice(at..at, token.iter().copied());
            }
            3 => bytes.truncate(at),
            4 => self.with_lines(bytes, |lines, a, b| {
                let line = lines[a].clone();
                lines.insert(b, line);
            }),
            5 => self.with_lines(bytes, |lines, a, b| lines.swap(a, b)),
            6 => self.with_lines(bytes, |lines, a, _| {
                lines.remove(a);
            }),
            _ => self.swap_words(bytes),
        }
    }

    fn with_lines(&mut self, bytes: &mut Vec<u8>, change: impl Fn(&mut Vec<Vec<u8>>, usize, usize)) {
        let mut lines: Vec<Vec<u8>> = bytes.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
        let (a, b) = (self.below(lines.len()), self.below(lines.len()));
        change(&mut lines, a, b);
        *bytes = lines.join(&b'\n');
    }

    /// Exchange two runs of letters and digits.
    fn swap_words(&mut self, bytes: &mut Vec<u8>) {
        let mut words = Vec::new();
        let mut start = None;
        for (i, byte) in bytes.iter().chain(b" ").enumerate() {
            match (byte.is_ascii_alphanumeric(), start) {
                (true, None) => start = Some(i),
                (false, Some(from)) => {
                    words.push(from..i);
                    start = None;
                }
                _ => {}
            }
        }
        if words.len() < 2 {
            return;
        }
        let first = self.below(words.len() - 1);
        let second = first + 1 + self.below(words.len() - first - 1);
        let (first, second) = (words[first].clone(), words[second].clone());
        let swapped =
            [&bytes[..first.start], &bytes[second.clone()], &bytes[first.end..second.start], &bytes[first], &bytes[second.end..]];
        *bytes = swapped.concat();
    }
}
