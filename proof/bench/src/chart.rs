//! Bar charts as SVG.

use std::fmt::Write;

use crate::rounds::float;
use crate::summary::number;

/// Sizes in pixels.
const PANEL_WIDTH: f64 = 620.0;
const GAP: f64 = 36.0;
const HEADER_HEIGHT: f64 = 74.0;
const TITLE_HEIGHT: f64 = 30.0;
const LEGEND_LINE: f64 = 18.0;
const BAR_HEIGHT: f64 = 15.0;
const GROUP_GAP: f64 = 12.0;
const LABEL_WIDTH: f64 = 120.0;
const VALUE_WIDTH: f64 = 60.0;
/// Ours are blue in every panel. The colours are distinguishable for the colour-blind.
const OUR_COLOURS: [&str; 3] = ["#0072b2", "#56b4e9", "#003f66"];
const OTHER_COLOURS: [&str; 4] = ["#e69f00", "#999999", "#009e73", "#cc79a7"];

/// Groups of horizontal bars; a series has the same colour in each group.
#[derive(Debug)]
pub(crate) struct Panel {
    title: String,
    series: Vec<String>,
    groups: Vec<(String, Vec<(usize, f64)>)>,
}

impl Panel {
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), series: Vec::new(), groups: Vec::new() }
    }

    pub(crate) fn group<S: Into<String>>(
        &mut self,
        label: impl Into<String>,
        bars: impl IntoIterator<Item = (S, f64)>,
    ) {
        let bars = bars.into_iter().map(|(name, value)| (self.series(name.into()), value));
        let bars = bars.collect();
        self.groups.push((label.into(), bars));
    }

    fn series(&mut self, name: String) -> usize {
        let found = self.series.iter().position(|other| *other == name);
        found.unwrap_or_else(|| {
            self.series.push(name);
            self.series.len() - 1
        })
    }

    fn colours(&self) -> Vec<&'static str> {
        let (mut ours, mut others) = (OUR_COLOURS.iter().cycle(), OTHER_COLOURS.iter().cycle());
        let colour = |name: &String| {
            if name.starts_with("ratelimiter") { ours.next() } else { others.next() }
        };
        self.series.iter().map(colour).map(|colour| *colour.expect("they cycle")).collect()
    }

    /// Draws the panel with its left upper corner at a point. Returns its height.
    fn draw(&self, svg: &mut Svg, left: f64, top: f64) -> f64 {
        svg.text(left, top + 14.0, "panel", &self.title);
        let colours = self.colours();
        let mut y = top + TITLE_HEIGHT;
        for (name, colour) in self.series.iter().zip(&colours) {
            svg.rect(left, y - 2.0, 12.0, 12.0, colour);
            svg.text(left + 18.0, y + 8.0, "", name);
            y += LEGEND_LINE;
        }
        let values = self.groups.iter().flat_map(|(_, bars)| bars).map(|(_, value)| *value);
        let max = values.fold(f64::MIN_POSITIVE, f64::max);
        for (label, bars) in &self.groups {
            svg.text(left + LABEL_WIDTH - 8.0, y + 12.0, "end", label);
            for &(series, value) in bars {
                let width = value / max * (PANEL_WIDTH - LABEL_WIDTH - VALUE_WIDTH);
                let x = left + LABEL_WIDTH;
                svg.rect(x, y + 1.0, width, BAR_HEIGHT - 2.0, colours[series]);
                svg.text(x + width + 4.0, y + 11.5, "", &number(value));
                y += BAR_HEIGHT;
            }
            y += GROUP_GAP;
        }
        y - top
    }
}

/// Draws the panels in two columns, each panel in the shorter one.
pub(crate) fn draw<'a>(subtitle: &str, panels: impl IntoIterator<Item = &'a Panel>) -> String {
    let mut svg = Svg::default();
    svg.text(
        GAP,
        34.0,
        "title",
        "ratelimiter compared with other limiters and the theoretical ceiling",
    );
    svg.text(GAP, 56.0, "note", subtitle);
    let mut bottoms = [HEADER_HEIGHT; 2];
    for panel in panels {
        let column = usize::from(bottoms[1] < bottoms[0]);
        let left = GAP + float(column) * (PANEL_WIDTH + GAP);
        bottoms[column] += panel.draw(&mut svg, left, bottoms[column]) + GAP;
    }
    let (width, height) = (2.0 * PANEL_WIDTH + 3.0 * GAP, bottoms[0].max(bottoms[1]));
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="system-ui, 'DejaVu Sans', sans-serif">
<style>text {{ font-size: 12px; fill: #222 }} .title {{ font-size: 20px; font-weight: bold }} .panel {{ font-size: 15px; font-weight: bold }} .note {{ fill: #666 }} .end {{ text-anchor: end }}</style>
<rect width="{width}" height="{height}" fill="white"/>
{}</svg>
"#,
        svg.0
    )
}

#[derive(Debug, Default)]
struct Svg(String);

impl Svg {
    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let text = text.replace('`', "");
        let line = format!(r#"<text x="{x:.1}" y="{y:.1}" class="{class}">{text}</text>"#);
        writeln!(self.0, "{line}").expect("writing to a string succeeds");
    }

    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, colour: &str) {
        let size = format!(r#"width="{width:.1}" height="{height:.1}""#);
        let line = format!(r#"<rect x="{x:.1}" y="{y:.1}" {size} fill="{colour}"/>"#);
        writeln!(self.0, "{line}").expect("writing to a string succeeds");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_the_longest_bar_fills_the_panel() {
        let mut panel = Panel::new("a < b & `c`");
        panel.group("one", [("ratelimiter", 1.0), ("theirs", 2.0)]);
        let svg = draw("here", &[panel]);
        assert!(svg.contains(">a &lt; b &amp; c<"), "{svg}");
        assert!(svg.contains(r##"width="220.0" height="13.0" fill="#0072b2""##), "{svg}");
        assert!(svg.contains(r##"width="440.0" height="13.0" fill="#e69f00""##), "{svg}");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }
}
