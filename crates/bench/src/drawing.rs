//! What all pictures share: letters, colours, a scale by factors of ten. Drawn as SVG; the PNG is a rendering of the same
//! drawing at twice the size.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub type Drawn = Result<(), String>;

pub const FONT: &str = "Ubuntu, DejaVu Sans, Helvetica, Arial, sans-serif";
pub const INK: RGBColor = RGBColor(33, 37, 41);
pub const QUIET: RGBColor = RGBColor(110, 118, 126);
pub const GRID: RGBColor = RGBColor(226, 229, 233);
pub const KERNEL: RGBColor = RGBColor(134, 142, 150);
pub const SPINNING: RGBColor = RGBColor(214, 137, 16);
pub const SHUNT: RGBColor = RGBColor(11, 114, 133);
pub const WORSE: RGBColor = RGBColor(201, 42, 42);
pub const FLOOR: RGBColor = RGBColor(33, 37, 41);
/// Floors beside each other, the closest first.
pub const FLOORS: [RGBColor; 4] = [FLOOR, RGBColor(132, 94, 194), RGBColor(47, 138, 68), RGBColor(130, 201, 120)];

/// A scale that gives every factor of ten the same length; upwards where `right` is the smaller.
#[derive(Clone, Copy)]
pub struct Logarithmic {
    pub from: f64,
    pub to: f64,
    pub left: i32,
    pub right: i32,
}

impl Logarithmic {
    /// A scale that holds all values, from a power of ten or `lowest` on.
    pub fn holding(values: impl Iterator<Item = f64>, lowest: f64, left: i32, right: i32) -> Self {
        let (least, most) =
            values.fold((lowest, lowest * 10.0), |(least, most), value| (f64::min(least, value), f64::max(most, value)));
        Self { from: least * 0.9, to: most * 1.15, left, right }
    }

    pub fn at(self, value: f64) -> i32 {
        let share = (value / self.from).ln() / (self.to / self.from).ln();
        self.left + (share.clamp(0.0, 1.0) * f64::from(self.right - self.left)).round() as i32
    }

    /// 1, 2 and 5 times the powers of ten while there is room, else the powers alone.
    pub fn ticks(self) -> Vec<f64> {
        let decades = (self.to / self.from).log10();
        let steps: &[f64] = if decades < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        (-12..13)
            .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)))
            .filter(|tick| (self.from..=self.to).contains(tick))
            .collect()
    }
}

/// A picture of this size as an SVG document.
pub fn picture(size: (i32, i32), draw: impl FnOnce(&Area) -> Drawn) -> Result<String, String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (size.0 as u32, size.1 as u32)).into_drawing_area();
        area.fill(&WHITE).map_err(drawing)?;
        draw(&area)?;
        area.present().map_err(drawing)?;
    }
    Ok(text)
}

/// The same drawing as PNG, twice as large, with letters that need no font of the machine.
pub fn png(svg: &str) -> Result<Vec<u8>, String> {
    use resvg::{tiny_skia, usvg};
    let mut options = usvg::Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    let family = fonts.faces().next().and_then(|face| face.families.first()).map(|(name, _)| name.clone());
    fonts.set_sans_serif_family(family.ok_or("the font inside this program has no name")?);
    let tree = usvg::Tree::from_str(svg, &options).map_err(|error| error.to_string())?;
    let size = tree.size();
    let (width, height) = (2 * size.width() as u32, 2 * size.height() as u32);
    let mut pixels = tiny_skia::Pixmap::new(width, height).ok_or("the picture has no size")?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(2.0, 2.0), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| error.to_string())
}

/// The micro sign, which a terminal may lack and a picture has.
pub fn micro(figure: String) -> String {
    figure.replace(" us", " µs")
}

/// A round time for an axis: `100 ns`, `2 µs`.
pub fn short_time(nanoseconds: f64) -> String {
    match nanoseconds {
        value if value < 999.5 => format!("{value:.0} ns"),
        value if value < 999_500.0 => format!("{:.0} µs", value / 1e3),
        value => format!("{:.0} ms", value / 1e6),
    }
}

pub fn line(area: &Area, from: (i32, i32), to: (i32, i32), colour: &RGBColor, width: u32) -> Drawn {
    area.draw(&PathElement::new([from, to], colour.stroke_width(width))).map_err(drawing)
}

pub fn write(area: &Area, text: &str, at: (i32, i32), size: i32, colour: &RGBColor, side: HPos) -> Drawn {
    write_at(area, text, at, size, colour, Pos::new(side, VPos::Top))
}

pub fn write_middle(area: &Area, text: &str, at: (i32, i32), size: i32, colour: &RGBColor, side: HPos) -> Drawn {
    write_at(area, text, at, size, colour, Pos::new(side, VPos::Center))
}

fn write_at(area: &Area, text: &str, at: (i32, i32), size: i32, colour: &RGBColor, position: Pos) -> Drawn {
    let style = TextStyle::from((FONT, size).into_font()).color(colour).pos(position);
    area.draw_text(text, &style, at).map_err(drawing)
}

pub fn drawing(error: impl std::fmt::Display) -> String {
    format!("cannot draw: {error}")
}
