#include "support.h"

#include <cstdlib>
#include <fstream>

// Pictures, to the byte: those in tests/nn/svg/ were looked at. Where one is meant to change, look at the new one, which the failing test names.

namespace heed {
namespace {

using test::message_of;

void expect_picture(const std::string& svg, const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(HEED_SOURCE_DIR) / "tests/nn/svg" / name;
  std::ifstream in(path, std::ios::binary);
  const std::string want{std::istreambuf_iterator<char>(in), {}};
  if (svg == want) return;
  const std::filesystem::path got = std::filesystem::path(::testing::TempDir()) / ("heed_" + name);
  std::ofstream(got, std::ios::binary) << svg;
  ADD_FAILURE() << "not the bytes of " << path << ": see " << got;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Tensor causal(Index n) { return tril(ones({n, n})).to(boolean); }

Tensor weights() { return tensor({{1, 0, 0, 0}, {.25, .75, 0, 0}, {0, .004, .996, 0}, {.1, .2, .3, .4}}, f64); }

TEST(SvgHeatMap, IsTheOneThatWasLookedAt) {
  const std::vector<std::string> tokens = {"the", " cat", "sat <on> & \"by\"", "\n"};
  expect_picture(nn::svg_heat_map(weights(), {.title = "Who looks at whom", .queries = tokens, .keys = tokens, .allowed = causal(4)}),
                 "heat_map.svg");
}

TEST(SvgHeatMap, TellsMaskedFromZeroAndWrongFromBoth) {
  const std::string open = nn::svg_heat_map(weights()), masked = nn::svg_heat_map(weights(), {.allowed = causal(4)});
  EXPECT_FALSE(contains(open, "url(#masked)"));
  EXPECT_FALSE(contains(open, ">masked<"));
  EXPECT_TRUE(contains(masked, ">masked<"));
  const auto covered = [](const std::string& svg) {
    const std::size_t at = svg.find("class=\"zero\" d=\"");
    return std::count(svg.begin() + static_cast<std::ptrdiff_t>(at), svg.begin() + static_cast<std::ptrdiff_t>(svg.find("\"/>", at)), 'M');
  };
  EXPECT_EQ(covered(open), 16) << "all cells are allowed";
  EXPECT_EQ(covered(masked), 10) << "six are masked";
  EXPECT_TRUE(contains(nn::svg_heat_map(tensor({{NAN, 0}})), "class=\"nan\""));
  EXPECT_FALSE(contains(nn::svg_heat_map(tensor({{NAN, .5}}), {.allowed = tensor({{0, 1}}, boolean)}), "class=\"nan\"")) << "NaN behind the mask";
  EXPECT_TRUE(contains(nn::svg_heat_map(zeros({2, 0})), "</svg>"));
}

TEST(SvgHeatMap, SharesCellsWhereThereAreMany) {
  Tensor many = zeros({300, 300});
  many.mutable_data<float>()[299 * 300 + 298] = .5F;
  const std::string svg = nn::svg_heat_map(many);
  EXPECT_TRUE(contains(svg, "largest of 3 x 3"));
  EXPECT_TRUE(contains(svg, "<title>297, 297: 0.5</title>"));
  EXPECT_LT(svg.size(), 500000u);
}

TEST(SvgHeatMap, RefusesWhatHeatMapRefuses) {
  const Tensor heads = rand({2, 3, 4, 5});
  EXPECT_EQ(nn::svg_heat_map(heads, {.head = 2, .batch = 1}), nn::svg_heat_map(heads[1][2]));
  EXPECT_TRUE(contains(message_of<IndexError>([&] { nn::svg_heat_map(heads, {.head = 3}); }), "svg_heat_map: no head 3"));
  EXPECT_THROW(nn::svg_heat_map(heads), ShapeError);
  EXPECT_THROW(nn::svg_heat_map(heads[0][0], {.allowed = causal(4)}), ShapeError);
  EXPECT_TRUE(contains(message_of<ShapeError>([&] { nn::heat_map(heads[0][0], {.allowed = ones({4, 5})}); }), "heat_map: wants allowed boolean"));
}

TEST(SvgCurves, AreTheOnesThatWereLookedAt) {
  nn::SvgCurve loss{.name = "training"}, held{.name = "held out"};
  for (int i = 1; i <= 60; ++i) loss.x.push_back(i), loss.y.push_back(2.75 / i + .02 * (i * 7 % 5));
  for (int i = 10; i <= 60; i += 10) held.x.push_back(i), held.y.push_back(i == 40 ? NAN : 3.1 / i + .1);
  expect_picture(nn::svg_curves({loss, held, {"guessing", {1, 60}, {2.77, 2.77}}}, {.title = "Loss", .x_label = "step", .y_label = "nats"}),
                 "curves.svg");
}

TEST(SvgCurves, DrawEveryRange) {
  const std::vector<std::pair<std::vector<double>, std::vector<double>>> cases = {{{}, {}},
                                                                                  {{1}, {5}},
                                                                                  {{1, 2}, {3, 3}},
                                                                                  {{0, 1}, {1e16, 1e16 + 2}},
                                                                                  {{0, 1}, {-1e149, 1e149}},
                                                                                  {{0, 1}, {1e-300, 2e-300}},
                                                                                  {{NAN}, {NAN}},
                                                                                  {{1e308, 1}, {1, 2}},
                                                                                  {{HUGE_VAL, 1}, {1, 2}},
                                                                                  {{0, 1}, {-5e-324, 0}}};
  for (const auto& [x, y] : cases) {
    const std::string svg = nn::svg_curves({{"a", x, y}});
    EXPECT_TRUE(contains(svg, "</svg>"));
    EXPECT_FALSE(contains(svg, "nan ") || contains(svg, "inf ") || contains(svg, " nan") || contains(svg, " inf")) << svg;
    EXPECT_LT(svg.size(), 8000u) << svg;
  }
}

/// A spike in a long curve is not lost, and the picture stays small.
TEST(SvgCurves, ThinOutLongOnes) {
  nn::SvgCurve c{.name = "long"};
  for (int i = 0; i < 200000; ++i) c.x.push_back(i), c.y.push_back(i == 123456 ? 7 : std::sin(i));
  const std::string svg = nn::svg_curves({c});
  EXPECT_LT(svg.size(), 60000u);
  EXPECT_TRUE(contains(svg, ">7<") || contains(svg, ">8<")) << "the axis reaches the spike";
  c.y[123456] = 0;
  EXPECT_NE(svg, nn::svg_curves({c}));
}

TEST(SvgCurves, AreWellFormedWhateverTheLabels) {
  const std::string svg = nn::svg_curves({{"a<b>&\"\x1b\xff\xed\xa0\x80\xc0\x80é"}}, {.title = "\x01 <t>"});
  EXPECT_TRUE(contains(svg, "a&lt;b&gt;&amp;&quot;\\x1b\\xff\\xed\\xa0\\x80\\xc0\\x80é<")) << svg;
  EXPECT_TRUE(contains(svg, "<title>\\x01 &lt;t&gt;</title>")) << svg;
  for (char ch : svg) EXPECT_TRUE(static_cast<unsigned char>(ch) >= 0x20 || ch == '\n');
}

TEST(SvgCurves, WrapTheLegend) {
  std::vector<nn::SvgCurve> curves(9);
  for (nn::SvgCurve& c : curves) c = {std::string(40, 'n'), {0, 1}, {0, 1}};
  const std::string svg = nn::svg_curves(curves);
  for (std::size_t at = svg.find("text-anchor=\"start\""); at != std::string::npos; at = svg.find("text-anchor=\"start\"", at + 1)) {
    const std::size_t x = svg.rfind("x=\"", at) + 3;
    EXPECT_LT(std::stod(svg.substr(x)) + 40 * 6.7, 720);
  }
  EXPECT_LT(nn::svg_curves({{std::string(5000, 'n'), {0, 1}, {0, 1}}}).size(), 4000u) << "a name is cut to what fits";
  EXPECT_TRUE(contains(nn::svg_curves(std::vector<nn::SvgCurve>(100, curves[0])), "</svg>"));
}

TEST(SvgCurves, RefuseWhatCannotBeDrawn) {
  EXPECT_EQ(message_of<Error>([] { nn::svg_curves({{"loss", {1, 2}, {1}}}); }), "svg_curves: curve loss has 2 x and 1 y");
  EXPECT_TRUE(contains(message_of<Error>([] { nn::svg_curves({}, {.width = 10}); }), "10 x 360"));
}

TEST(HeatMap, ShowsMaskedZeroAndNaN) {
  EXPECT_EQ(nn::heat_map(tensor({{1, 0}, {0, NAN}}), {.allowed = causal(2)}),
            "   0 1\n"
            "0  @@\n"
            "1  ..??\n"
            "   0 ..::--==++**##%%@@ 1, blank: masked\n");
}

TEST(HeatMap, HasColorsForZeroButNoneForMasked) {
  const std::string map = nn::heat_map(tensor({{1, 0}, {0, 1}}), {.allowed = causal(2), .ink = nn::Ink::color});
  EXPECT_TRUE(contains(map, "0  \x1b[48;5;226m  \x1b[0m  \n1  \x1b[48;5;54m  \x1b[0m\x1b[48;5;226m  \x1b[0m\n")) << map;
}

/// Also with long labels, many keys, both, and letters of several bytes.
TEST(HeatMap, FitsIntoEightyColumns) {
  const std::string longest(200, 'x');
  const Tensor w = rand({3, 500});
  for (const std::string& label : {std::string("a"), longest, std::string("Überschrift"), std::string("tab\there\x1b[2J")}) {
    std::istringstream lines(nn::heat_map(w, {.queries = {label, label, label}, .allowed = ones({3, 500}, boolean)}));
    for (std::string line; std::getline(lines, line);) {
      const auto columns = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
      EXPECT_LE(columns, 80) << line;
      EXPECT_FALSE(contains(line, "\x1b")) << line;
    }
  }
  EXPECT_TRUE(contains(nn::heat_map(tensor({{1}}), {.keys = {"né"}}), "   n\n   é\n"));
}

TEST(HeatMap, ColorsTerminalsOnly) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(nn::ink_for(file), nn::Ink::ascii);
  std::fclose(file);
}

}  // namespace
}  // namespace heed
