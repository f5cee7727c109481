//! What a section says: tables, how each cost grows, what is not held; and where that is written.

use super::plot;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The exponent from which on a cost grows faster than linearly. What is linear is measured as 0.9 to
/// 1.15: what no longer fits the processor's caches costs more a piece. What is quadratic is near 2.
const MOST: f64 = 1.2;

/// One section.
#[derive(Default)]
pub(crate) struct Section {
    /// Its title, and the name of its plot.
    pub(crate) title: &'static str,
    pub(crate) file: &'static str,
    /// What is measured, in a sentence or two, and what the tables say.
    pub(crate) text: String,
    /// What grows.
    pub(crate) over: &'static str,
    pub(crate) costs: Vec<Cost>,
    /// Promises that were not kept.
    pub(crate) broken: Vec<String>,
}

/// Something that grows with something.
pub(crate) struct Cost {
    /// What it is, with its unit.
    pub(crate) what: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Cost {
    /// The points that tell of growth: below them what is there anyway outweighs it.
    pub(crate) fn upper(&self) -> &[(f64, f64)] {
        &self.points[self.points.len().saturating_sub(3)..]
    }

    /// The slope on logarithmic scales, by least squares: 1 is linear, 0 is constant.
    pub(crate) fn exponent(&self) -> f64 {
        let logs: Vec<(f64, f64)> = self
            .upper()
            .iter()
            .map(|(x, y)| (x.ln(), y.max(f64::MIN_POSITIVE).ln()))
            .collect();
        let n = logs.len() as f64;
        let (mx, my) = (
            logs.iter().map(|p| p.0).sum::<f64>() / n,
            logs.iter().map(|p| p.1).sum::<f64>() / n,
        );
        let over: f64 = logs.iter().map(|(x, y)| (x - mx) * (y - my)).sum();
        over / logs.iter().map(|(x, _)| (x - mx).powi(2)).sum::<f64>()
    }
}

impl Section {
    /// Adds how each cost grows, and what grows too fast.
    pub(crate) fn with_exponents(mut self) -> Self {
        self.text += "\n| cost | exponent |\n| --- | --- |\n";
        for cost in &self.costs {
            let exponent = cost.exponent();
            writeln!(self.text, "| {} | {exponent:.2} |", cost.what).unwrap();
            // What could not be measured is not held either.
            if exponent.is_nan() || exponent > MOST {
                self.broken.push(format!(
                    "{} grows with the power of {exponent:.2} of {}, above {MOST}",
                    cost.what, self.over
                ));
            }
        }
        self
    }

    /// As it stands in the docs.
    pub(crate) fn text(&self) -> String {
        let mut out = format!("### {}\n{}", self.title, self.text);
        if !self.costs.is_empty() {
            let (file, over) = (self.file, self.over);
            write!(out, "\n![Cost over {over}]({file}.svg)\n").unwrap();
        }
        out
    }

    fn name(&self) -> String {
        self.title.to_lowercase().replace(' ', "-")
    }
}

/// Puts each section between its markers in docs/performance.md, and its plot beside it.
pub(crate) fn write(root: &Path, sections: &[Section]) {
    let page = root.join("docs/performance.md");
    let mut text = fs::read_to_string(&page).unwrap();
    for section in sections {
        let name = section.name();
        let [begin, end] =
            ["begin", "end"].map(|which| format!("<!-- growth: {name}, {which} -->\n"));
        let from = text.find(&begin).expect("the section's marker") + begin.len();
        let to = from + text[from..].find(&end).expect("its end");
        text.replace_range(from..to, &section.text());
        if !section.costs.is_empty() {
            let plot = plot::svg(section.over, &section.costs);
            fs::write(root.join(format!("docs/{}.svg", section.file)), plot).unwrap();
        }
    }
    fs::write(&page, text).unwrap();
}

/// Three digits that count.
pub(crate) fn short(value: f64) -> String {
    let digits = if value.abs() >= 100.0 {
        0
    } else if value.abs() >= 10.0 {
        1
    } else {
        2
    };
    grouped(&format!("{value:.digits$}"))
}

/// Commas between thousands.
pub(crate) fn grouped(number: &str) -> String {
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let mut out = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) && out != "-" {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}
