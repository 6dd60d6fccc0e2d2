//! Horizontal bars in groups, each with its value behind it.

use super::axis::ticks;
use super::{LEGEND_LINE, PANEL_WIDTH, Svg, colours, shortened};
use crate::rounds::float;
use crate::spread::figure;

const BAR_HEIGHT: f64 = 15.0;
const GROUP_GAP: f64 = 12.0;
const LABEL_WIDTH: f64 = 120.0;
const VALUE_WIDTH: f64 = 60.0;
const TITLE_HEIGHT: f64 = 30.0;
const AXIS_HEIGHT: f64 = 24.0;

/// Groups of bars; the same series has the same colour in each group.
#[derive(Debug)]
pub(crate) struct Bars {
    title: String,
    series: Vec<String>,
    groups: Vec<(String, Vec<(usize, f64)>)>,
}

impl Bars {
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), series: Vec::new(), groups: Vec::new() }
    }

    pub(crate) fn group<'a>(
        &mut self,
        label: impl Into<String>,
        bars: impl IntoIterator<Item = (&'a str, f64)>,
    ) {
        let bars = bars.into_iter().map(|(name, value)| (self.series(name), value)).collect();
        self.groups.push((label.into(), bars));
    }

    fn series(&mut self, name: &str) -> usize {
        let found = self.series.iter().position(|other| other == name);
        found.unwrap_or_else(|| {
            self.series.push(name.to_owned());
            self.series.len() - 1
        })
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        self.groups.iter().flat_map(|(_, bars)| bars.iter().map(|(_, value)| *value))
    }

    fn top(&self) -> f64 {
        TITLE_HEIGHT + LEGEND_LINE * float(self.series.len())
    }

    fn bottom(&self) -> f64 {
        let bars = BAR_HEIGHT * float(self.values().count());
        self.top() + bars + GROUP_GAP * float(self.groups.len())
    }

    pub(super) fn height(&self) -> f64 {
        self.bottom() + AXIS_HEIGHT
    }

    pub(super) fn draw(&self, svg: &mut Svg) {
        svg.text(0.0, 14.0, "panel", &self.title);
        svg.legend(TITLE_HEIGHT + 8.0, &self.series);
        let (top, bottom) = (self.top(), self.bottom());
        let ticks = ticks(self.values().fold(f64::MIN_POSITIVE, f64::max));
        let end = ticks[ticks.len() - 1];
        let x = |value: f64| LABEL_WIDTH + value / end * (PANEL_WIDTH - LABEL_WIDTH - VALUE_WIDTH);
        for &tick in &ticks {
            let class = if tick > 0.0 { "grid" } else { "axis" };
            svg.line((x(tick), top), (x(tick), bottom), class);
            svg.text(x(tick), bottom + 15.0, "note middle", &shortened(tick));
        }
        let colours = colours(&self.series);
        let mut y = top + GROUP_GAP / 2.0;
        for (label, bars) in &self.groups {
            svg.text(LABEL_WIDTH - 8.0, y + 12.0, "end", label);
            for &(series, value) in bars {
                let width = x(value) - LABEL_WIDTH;
                svg.rect(LABEL_WIDTH, y + 1.0, width, BAR_HEIGHT - 2.0, colours[series]);
                svg.text(x(value) + 4.0, y + 11.5, "", &figure(value));
                y += BAR_HEIGHT;
            }
            y += GROUP_GAP;
        }
    }
}
