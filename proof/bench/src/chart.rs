//! A chart of several panels, as SVG.

mod axis;
mod bars;
mod lines;

use std::fmt::Write;

pub(crate) use self::bars::Bars;
pub(crate) use self::lines::Lines;
use crate::rounds::float;
use crate::spread::figure;

/// How wide and how far apart panels are, in pixels.
const PANEL_WIDTH: f64 = 620.0;
const GAP: f64 = 36.0;
const COLUMNS: usize = 2;
const HEADER_HEIGHT: f64 = 74.0;
/// Ours are blue, whatever else a panel shows; the others are told apart also by those who see no red or green.
const OUR_COLOURS: [&str; 3] = ["#0072b2", "#56b4e9", "#003f66"];
const OTHER_COLOURS: [&str; 4] = ["#e69f00", "#999999", "#009e73", "#cc79a7"];

/// One picture of a chart.
#[derive(Debug)]
pub(crate) enum Panel {
    Bars(Bars),
    Lines(Lines),
}

impl Panel {
    fn height(&self) -> f64 {
        match self {
            Self::Bars(bars) => bars.height(),
            Self::Lines(lines) => lines.height(),
        }
    }

    fn draw(&self, svg: &mut Svg) {
        match self {
            Self::Bars(bars) => bars.draw(svg),
            Self::Lines(lines) => lines.draw(svg),
        }
    }
}

/// Draws the panels in columns, each below the shorter of them.
pub(crate) fn draw<'a>(subtitle: &str, panels: impl IntoIterator<Item = &'a Panel>) -> String {
    let mut svg = Svg::default();
    let mut bottoms = [HEADER_HEIGHT; COLUMNS];
    for panel in panels {
        let column = if bottoms[1] < bottoms[0] { 1 } else { 0 };
        let x = if column == 0 { GAP } else { 2.0 * GAP + PANEL_WIDTH };
        svg.open_group(x, bottoms[column]);
        panel.draw(&mut svg);
        svg.close_group();
        bottoms[column] += panel.height() + GAP;
    }
    let (width, height) = (2.0 * PANEL_WIDTH + 3.0 * GAP, bottoms[0].max(bottoms[1]));
    let mut page = Svg::default();
    page.text(GAP, 34.0, "title", "ratelimiter beside its peers and beside the limit");
    page.text(GAP, 56.0, "note", subtitle);
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="system-ui, 'DejaVu Sans', sans-serif">
<style>text {{ font-size: 12px; fill: #222 }} .title {{ font-size: 20px; font-weight: bold }} .panel {{ font-size: 15px; font-weight: bold }} .note {{ fill: #666 }} .end {{ text-anchor: end }} .middle {{ text-anchor: middle }} .grid {{ stroke: #ddd }} .axis {{ stroke: #888 }}</style>
<rect width="{width}" height="{height}" fill="white"/>
{}{}</svg>
"#,
        page.0, svg.0
    )
}

/// Shapes, in the order in which they are drawn.
#[derive(Debug, Default)]
struct Svg(String);

impl Svg {
    fn add(&mut self, shape: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{shape}").expect("a string takes everything");
    }

    fn open_group(&mut self, x: f64, y: f64) {
        self.add(format_args!(r#"<g transform="translate({x:.0} {y:.0})">"#));
    }

    fn close_group(&mut self) {
        self.add(format_args!("</g>"));
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let text = escaped(text);
        self.add(format_args!(r#"<text x="{x:.1}" y="{y:.1}" class="{class}">{text}</text>"#));
    }

    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, colour: &str) {
        self.add(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{colour}"/>"#
        ));
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.add(format_args!(
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#
        ));
    }

    /// A line with a dot at each of its points.
    fn line_through(&mut self, points: &[(f64, f64)], colour: &str) {
        let path: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let path = path.join(" ");
        self.add(format_args!(
            r#"<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>"#
        ));
        for (x, y) in points {
            self.add(format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" fill="{colour}"/>"#));
        }
    }

    /// The names of series with their colours, one below the other.
    fn legend(&mut self, y: f64, names: &[String]) {
        for (at, (name, colour)) in names.iter().zip(colours(names)).enumerate() {
            let y = y + LEGEND_LINE * float(at);
            self.rect(0.0, y - 10.0, 12.0, 12.0, colour);
            self.text(18.0, y, "", name);
        }
    }
}

const LEGEND_LINE: f64 = 18.0;

/// A colour for each of these series.
fn colours(names: &[String]) -> Vec<&'static str> {
    let (mut ours, mut others) = (OUR_COLOURS.iter().cycle(), OTHER_COLOURS.iter().cycle());
    let is_ours = |name: &String| name.starts_with("ratelimiter");
    let colour = |name| if is_ours(name) { ours.next() } else { others.next() };
    names.iter().map(colour).map(|colour| *colour.expect("colours begin again")).collect()
}

/// A number of an axis, without decimals that say nothing.
fn shortened(tick: f64) -> String {
    let text = figure(tick);
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_does_not_become_markup_and_every_group_is_closed() {
        let mut bars = Bars::new("a < b & `c`");
        bars.group("one", [("ours", 1.0), ("theirs", 2.0)]);
        let mut lines = Lines::new("growth", "n");
        lines.line("ours", [(1.0, 1.0), (100.0, 1.5)]);
        let svg = draw("here", &[Panel::Bars(bars), Panel::Lines(lines)]);
        assert!(svg.contains(">a &lt; b &amp; c<"), "{svg}");
        assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }
}
