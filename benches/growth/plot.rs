//! A plot of costs: a panel for each, logarithmic both ways, the dotted line linear growth.

use super::growth::{Cost, grouped, short};
use std::fmt::Write as _;

const WIDTH: f64 = 250.0;
const HEIGHT: f64 = 190.0;
/// Left, top, and below a panel: for the numbers and titles.
const LEFT: f64 = 58.0;
const TOP: f64 = 34.0;
const BELOW: f64 = 42.0;
const RIGHT: f64 = 24.0;

/// Colours that can be read on white and on black.
const INK: &str = "#6e7781";
const LINE: &str = "#2f81f7";

/// The plot, as SVG.
pub(crate) fn svg(over: &str, costs: &[Cost]) -> String {
    let panel = LEFT + WIDTH + RIGHT;
    let (width, height) = (panel * costs.len() as f64, TOP + HEIGHT + BELOW);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"{INK}\">\n"
    );
    let titles: Vec<&str> = costs.iter().map(|cost| cost.what).collect();
    writeln!(
        out,
        "<title>{} over {over}; the dotted line is linear growth</title>",
        titles.join("; ")
    )
    .unwrap();
    for (number, cost) in costs.iter().enumerate() {
        draw(&mut out, panel * number as f64, over, cost);
    }
    out + "</svg>\n"
}

/// Whole decades around some values.
struct Axis {
    from: f64,
    to: f64,
}

impl Axis {
    fn around(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let least = values.clone().fold(f64::INFINITY, f64::min).log10();
        let most = values.fold(0.0, f64::max).log10();
        let (from, to) = ((least + 1e-9).floor(), (most - 1e-9).ceil());
        Axis {
            from,
            to: to.max(from + 1.0),
        }
    }

    /// From 0 to 1.
    fn place(&self, value: f64) -> f64 {
        (value.log10() - self.from) / (self.to - self.from)
    }

    fn decades(&self) -> impl Iterator<Item = f64> + use<> {
        let mut at = self.from;
        let to = self.to;
        std::iter::from_fn(move || {
            (at <= to).then(|| {
                at += 1.0;
                10_f64.powf(at - 1.0)
            })
        })
    }
}

fn draw(out: &mut String, at: f64, over: &str, cost: &Cost) {
    let finite = cost.points.iter().filter(|(_, y)| y.is_finite());
    let points: Vec<(f64, f64)> = finite.map(|(x, y)| (*x, y.max(1e-6))).collect();
    let x_axis = Axis::around(points.iter().map(|p| p.0));
    let y_axis = Axis::around(points.iter().map(|p| p.1));
    let left = at + LEFT;
    let x = |value: f64| left + WIDTH * x_axis.place(value);
    let y = |value: f64| TOP + HEIGHT * (1.0 - y_axis.place(value));

    let (middle, below) = (left + WIDTH / 2.0, TOP + HEIGHT);
    writeln!(
        out,
        "<text x=\"{middle:.0}\" y=\"{:.0}\" text-anchor=\"middle\" font-weight=\"600\">{}</text>",
        TOP - 12.0,
        cost.what
    )
    .unwrap();
    writeln!(
        out,
        "<text x=\"{middle:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{over}</text>",
        below + 34.0
    )
    .unwrap();
    for value in x_axis.decades() {
        let x = x(value);
        writeln!(
            out,
            "<path d=\"M{x:.1} {TOP}V{below}\" stroke=\"{INK}\" stroke-opacity=\".3\"/>\
            <text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            below + 16.0,
            tick(value)
        )
        .unwrap();
    }
    for value in y_axis.decades() {
        let y = y(value);
        writeln!(
            out,
            "<path d=\"M{left} {y:.1}H{}\" stroke=\"{INK}\" stroke-opacity=\".3\"/>\
            <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left + WIDTH,
            left - 6.0,
            y + 4.0,
            tick(value)
        )
        .unwrap();
    }
    // Linear growth from the first of the points whose slope is told, as far as the panel goes.
    if let Some((x0, y0)) = cost.upper().first().map(|(x, y)| (*x, y.max(1e-6))) {
        let (x_end, y_end) = (10_f64.powf(x_axis.to), 10_f64.powf(y_axis.to));
        let factor = (x_end / x0).min(y_end / y0);
        writeln!(
            out,
            "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"{INK}\" stroke-width=\"1.5\" stroke-dasharray=\"2 4\" fill=\"none\"/>",
            x(x0), y(y0), x(x0 * factor), y(y0 * factor)
        )
        .unwrap();
    }
    let path: Vec<String> = points
        .iter()
        .map(|(px, py)| format!("{:.1} {:.1}", x(*px), y(*py)))
        .collect();
    writeln!(
        out,
        "<path d=\"M{}\" stroke=\"{LINE}\" stroke-width=\"2\" fill=\"none\"/>",
        path.join("L")
    )
    .unwrap();
    for (px, py) in &points {
        writeln!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{LINE}\"><title>{} at {}</title></circle>",
            x(*px),
            y(*py),
            short(*py),
            grouped(&px.to_string())
        )
        .unwrap();
    }
}

/// As short as the place below a panel.
fn tick(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", grouped(&format!("{:.0}", v / 1e6))),
        v if v >= 1e4 => format!("{:.0}k", v / 1e3),
        v if v >= 1.0 => grouped(&format!("{v:.0}")),
        v => format!("{v:.6}").trim_end_matches('0').to_owned(),
    }
}
