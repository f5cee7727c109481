//! The samples of a page in classic text, read strictly enough for tests.

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    /// Unescaped, in the page's order.
    pub(crate) labels: Vec<(String, String)>,
    /// As it stands on the page.
    pub(crate) text: String,
}

impl Sample {
    pub(crate) fn value(&self) -> f64 {
        match self.text.as_str() {
            "+Inf" => f64::INFINITY,
            "-Inf" => f64::NEG_INFINITY,
            text => text.parse().unwrap_or_else(|_| panic!("a value: {self:?}")),
        }
    }

    fn has(&self, labels: &[(&str, &str)]) -> bool {
        labels
            .iter()
            .all(|(name, value)| self.label(name) == Some(value))
    }

    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        let found = self.labels.iter().find(|label| label.0 == name);
        found.map(|label| label.1.as_str())
    }
}

/// All samples of a page.
pub(crate) struct Samples(pub(crate) Vec<Sample>);

impl Samples {
    pub(crate) fn parse(page: &str) -> Self {
        let lines = page
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(
            lines
                .map(|line| sample(line).unwrap_or_else(|| panic!("a bad line: {line}")))
                .collect(),
        )
    }

    /// All of a name that have these labels, and perhaps others.
    pub(crate) fn all(&self, name: &str, labels: &[(&str, &str)]) -> Vec<&Sample> {
        let wanted = |sample: &&Sample| sample.name == name && sample.has(labels);
        self.0.iter().filter(wanted).collect()
    }

    /// The value of the one that there is, if any.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let all = self.all(name, labels);
        assert!(all.len() < 2, "several of {name} {labels:?}: {all:?}");
        all.first().map(|sample| sample.value())
    }

    /// The sum over all that have these labels; 0 for none.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.all(name, labels)
            .iter()
            .map(|sample| sample.value())
            .sum()
    }
}

fn sample(line: &str) -> Option<Sample> {
    let at = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(at);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.push((label.to_owned(), value));
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let text = rest.strip_prefix(' ')?.to_owned();
    Some(Sample {
        name: name.to_owned(),
        labels,
        text,
    })
}

/// The value up to the closing quote, unescaped, and what follows the quote.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}
