//! Lines through a few points, whose places on the axis below are named and evenly spaced.

use super::axis::ticks;
use super::{LEGEND_LINE, PANEL_WIDTH, Svg, colours, shortened};
use crate::rounds::float;
use crate::spread::figure;

const TITLE_HEIGHT: f64 = 30.0;
const PLOT_HEIGHT: f64 = 190.0;
const PLOT_MARGIN: f64 = 10.0;
const AXIS_HEIGHT: f64 = 40.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = PANEL_WIDTH - 60.0;
const VALUE_HEIGHT: f64 = 13.0;
/// How far the outer points are from the ends of the axis.
const INSET: f64 = 30.0;

/// Lines; all of them have their points at the same places.
#[derive(Debug)]
pub(crate) struct Lines {
    title: String,
    x_unit: &'static str,
    lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Lines {
    pub(crate) fn new(title: impl Into<String>, x_unit: &'static str) -> Self {
        Self { title: title.into(), x_unit, lines: Vec::new() }
    }

    /// A line through at least two points.
    pub(crate) fn line(
        &mut self,
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) {
        let points: Vec<_> = points.into_iter().collect();
        assert!(points.len() > 1, "a line has two ends");
        self.lines.push((name.into(), points));
    }

    fn top(&self) -> f64 {
        TITLE_HEIGHT + LEGEND_LINE * float(self.lines.len()) + PLOT_MARGIN
    }

    pub(super) fn height(&self) -> f64 {
        self.top() + PLOT_HEIGHT + AXIS_HEIGHT
    }

    pub(super) fn draw(&self, svg: &mut Svg) {
        svg.text(0.0, 14.0, "panel", &self.title);
        let names: Vec<_> = self.lines.iter().map(|(name, _)| name.clone()).collect();
        svg.legend(TITLE_HEIGHT + 8.0, &names);
        let bottom = self.top() + PLOT_HEIGHT;
        let values = self.lines.iter().flat_map(|(_, points)| points.iter().map(|(_, y)| *y));
        let ticks = ticks(values.fold(f64::MIN_POSITIVE, f64::max));
        let end = ticks[ticks.len() - 1];
        let y = |value: f64| bottom - value / end * PLOT_HEIGHT;
        for &tick in &ticks {
            let class = if tick > 0.0 { "grid" } else { "axis" };
            svg.line((LEFT, y(tick)), (RIGHT, y(tick)), class);
            svg.text(LEFT - 8.0, y(tick) + 4.0, "note end", &shortened(tick));
        }
        svg.text(RIGHT, bottom + 32.0, "note end", self.x_unit);
        let colours = colours(&names);
        let mut ends = Vec::new();
        for (series, (_, points)) in self.lines.iter().enumerate() {
            let step = (RIGHT - LEFT - 2.0 * INSET) / float(points.len() - 1);
            let place = |at: usize| LEFT + INSET + step * float(at);
            let places: Vec<_> =
                points.iter().enumerate().map(|(at, (_, value))| (place(at), y(*value))).collect();
            svg.line_through(&places, colours[series]);
            if series == 0 {
                for ((x, _), (named, _)) in places.iter().zip(points) {
                    svg.text(*x, bottom + 16.0, "note middle", &shortened(*named));
                }
            }
            let ((x, y), (_, value)) = (places[places.len() - 1], points[points.len() - 1]);
            ends.push((x + 8.0, y + 4.0, figure(value)));
        }
        // Where lines end close to each other, their values are moved apart.
        ends.sort_by(|(_, a, _), (_, b, _)| a.total_cmp(b));
        let mut free = f64::MIN;
        for (x, y, value) in ends {
            svg.text(x, y.max(free), "", &value);
            free = y.max(free) + VALUE_HEIGHT;
        }
    }
}
