#include <fmt/format.h>
#include <heed/nn/text/pieces.h>
#include <heed/nn/text/unicode.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

#include "support.h"

// Tokenizers: every text comes back, GPT-2's files mean what they mean elsewhere, and bad files are refused with a reason.

namespace heed {
namespace {

using nn::BpeTokenizer;
using nn::ByteTokenizer;
using nn::CharTokenizer;
using test::message_of;
using Ids = std::vector<Index>;

const std::filesystem::path golden = std::filesystem::path(HEED_SOURCE_DIR) / "tests/golden/bpe";

std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
const nlohmann::json& cases() {
  static const nlohmann::json all = nlohmann::json::parse(contents(golden / "cases.json"));
  return all;
}

/// Bytes of all kinds, cut off anywhere: most are not UTF-8.
std::string any_bytes(std::mt19937_64& random) {
  static const std::vector<std::string> parts = {
      "the ", "  ", "\n", "\xC3\x9F", "\xE4\xBD\xA0", "\xF0\x9F\x98\x80", "\xED\xA0\x80", "\xC0\x80", "'ll", "12", std::string(1, '\0'), "\xFF", "a"};
  std::string out;
  for (std::size_t n = random() % 40; n > 0; --n) out += random() % 2 ? parts[random() % parts.size()] : std::string(1, static_cast<char>(random()));
  return out.substr(random() % (out.size() + 1));
}

void expect_round_trips(const nn::Tokenizer& t) {
  const auto again = nn::tokenizer_from(t.metadata());
  EXPECT_EQ(again->vocab_size(), t.vocab_size());
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    const std::string text = any_bytes(random);
    const Ids ids = t.encode(text);
    ASSERT_EQ(t.decode(ids), text);
    ASSERT_EQ(again->encode(text), ids);
  }
  EXPECT_EQ(t.encode(""), Ids());
  EXPECT_THROW(t.token(-1), IndexError);
  EXPECT_THROW(t.decode({0, t.vocab_size()}), IndexError);
}

std::string all_bytes() {
  std::string out;
  for (int b = 0; b < 256; ++b) out += static_cast<char>(b);
  return out;
}

TEST(Bytes, ComeBack) {
  expect_round_trips(ByteTokenizer());
  EXPECT_EQ(ByteTokenizer().encode("A\xFF"), (Ids{65, 255}));
}

TEST(Characters, ComeBackWhateverTheBytes) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    const std::string text = any_bytes(random) + "x";
    const CharTokenizer t(text);
    const Ids ids = t.encode(text);
    ASSERT_EQ(t.decode(ids), text);
    ASSERT_EQ(static_cast<Index>(ids.size()), detail::count_characters(text));
    ASSERT_EQ(nn::tokenizer_from(t.metadata())->encode(text), ids);
  }
  EXPECT_EQ(CharTokenizer(all_bytes()).vocab_size(), 256);
  EXPECT_THROW(CharTokenizer("ab").token(2), IndexError);
}

TEST(Characters, AreCodePointsInOrderThenStrayBytes) {
  const CharTokenizer t(
      "b\xC3\x9F"
      "a\xFF"
      "b");
  EXPECT_EQ(t.vocab_size(), 4);
  EXPECT_EQ(t.encode("ab\xC3\x9F\xFF"), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(t.token(2), "\xC3\x9F");
  EXPECT_EQ(nn::tokenizer_from(t.metadata())->encode("ab\xC3\x9F\xFF"), (Ids{0, 1, 2, 3}));
  const std::string unknown = message_of<IndexError>([&] { t.encode("abc"); });
  EXPECT_NE(unknown.find("U+0063 at byte 2"), std::string::npos) << unknown;
  EXPECT_THROW(t.encode("\xC3"), IndexError);  // a stray byte, not this one
  EXPECT_THROW(CharTokenizer(""), Error);
}

TEST(Characters, OfBadMetadataAreRefused) {
  const auto refused = [](std::map<std::string, std::string> metadata) { return message_of<IoError>([&] { nn::tokenizer_from(metadata); }); };
  EXPECT_NE(refused({}).find("tokenizer.kind"), std::string::npos);
  EXPECT_NE(refused({{"tokenizer.kind", "words"}}).find("words"), std::string::npos);
  const auto characters = [&](const char* text, const char* bytes) {
    return refused({{"tokenizer.kind", "characters"}, {"tokenizer.characters", text}, {"tokenizer.bytes", bytes}});
  };
  EXPECT_NE(characters("aba", "").find("twice"), std::string::npos);
  EXPECT_NE(characters("a\xFF", "").find("UTF-8"), std::string::npos);
  for (const char* bytes : {"127", "256", "200 200", "200 ", "200,201", " 200", "x"}) EXPECT_NE(characters("a", bytes), "") << bytes;
  EXPECT_NE(characters("", ""), "");
  EXPECT_EQ(characters("", "200 201"), "");
}

TEST(Unicode, TellsClassesApart) {
  using detail::CharClass;
  using detail::class_of;
  for (char32_t c : {U'a', U'Z', char32_t{0xDF}, char32_t{0x4F60}, char32_t{0x1D400}, char32_t{0x2B0}, char32_t{0x1C5}})
    EXPECT_EQ(class_of(c), CharClass::letter) << static_cast<unsigned>(c);
  for (char32_t c : {U'0', char32_t{0xBD}, char32_t{0x664}, char32_t{0x2167}}) EXPECT_EQ(class_of(c), CharClass::number) << static_cast<unsigned>(c);
  for (char32_t c : {U' ', U'\v', char32_t{0x85}, char32_t{0xA0}, char32_t{0x2003}, char32_t{0x3000}})
    EXPECT_EQ(class_of(c), CharClass::space) << static_cast<unsigned>(c);
  for (char32_t c :
       {U'\0', U'_', U'[', char32_t{0x200B}, char32_t{0x1F600}, char32_t{0x301}, char32_t{0x378}, char32_t{0x10FFFF}, char32_t{0xFFFFFFFF}})
    EXPECT_EQ(class_of(c), CharClass::other) << static_cast<unsigned>(c);
}

TEST(Pieces, AreThoseOfThePublishedPattern) {
  for (const auto& c : cases().at("cases")) {
    const auto text = c.at("text").get<std::string>();
    const std::vector<std::string_view> pieces = detail::gpt2_pieces(text);
    EXPECT_EQ(std::vector<std::string>(pieces.begin(), pieces.end()), c.at("pieces").get<std::vector<std::string>>()) << text;
  }
}

std::string utf8(char32_t c) {
  const auto byte = [](char32_t b) { return static_cast<char>(b); };
  const auto rest = [&](int shift) { return byte(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) return {byte(c)};
  if (c < 0x800) return {byte(0xC0 | c >> 6), rest(0)};
  if (c < 0x10000) return {byte(0xE0 | c >> 12), rest(6), rest(0)};
  return {byte(0xF0 | c >> 18), rest(12), rest(6), rest(0)};
}

/// As golden/pieces.py, whose digests are those of the pattern itself.
TEST(Pieces, OfEveryCodePointAreThoseOfThePublishedPattern) {
  const auto want = nlohmann::json::parse(contents(golden.parent_path() / "pieces.json"));
  const auto templates = want.at("templates").get<std::vector<std::string>>();
  const auto block = want.at("block").get<char32_t>();
  ASSERT_EQ(want.at("digests").size(), 0x110000 / block);
  for (const auto& [first, digest] : want.at("digests").items()) {
    const auto begin = static_cast<char32_t>(std::stoul(first, nullptr, 16));
    std::uint64_t value = 0xCBF29CE484222325;
    for (char32_t c = begin; c < begin + block; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;  // halves of surrogate pairs are not text
      const std::string point = utf8(c);
      for (std::string text : templates) {
        for (std::size_t at = 0; (at = text.find("{}", at)) != text.npos; at += point.size()) text.replace(at, 2, point);
        for (std::string_view piece : detail::gpt2_pieces(text)) value = (value ^ piece.size()) * 0x100000001B3;
        value *= 0x100000001B3;
      }
    }
    EXPECT_EQ(fmt::format("{:016x}", value), digest.get<std::string>()) << "from U+" << first;
  }
}

TEST(Bpe, ReadsThePublishedFormatAndAgreesWithAPlainReading) {
  const BpeTokenizer t = BpeTokenizer::load(golden);
  EXPECT_EQ(t.vocab_size(), cases().at("vocab_size").get<Index>());
  for (const auto& c : cases().at("cases")) EXPECT_EQ(t.encode(c.at("text").get<std::string>()), c.at("ids").get<Ids>()) << c.at("text");
  ASSERT_TRUE(t.id_of("<|endoftext|>"));
  EXPECT_EQ(t.token(*t.id_of("<|endoftext|>")), "<|endoftext|>");
  EXPECT_EQ(t.id_of("no such token"), std::nullopt);
  expect_round_trips(t);
}

TEST(Bpe, LearnsTheMergesThatAPlainReadingLearns) {
  const auto corpus = cases().at("corpus").get<std::string>();
  const BpeTokenizer t = BpeTokenizer::train(corpus, {.vocab_size = 330});
  const BpeTokenizer want = BpeTokenizer::load(golden);
  EXPECT_EQ(t.metadata().at("tokenizer.merges.txt"), want.metadata().at("tokenizer.merges.txt"));
  EXPECT_EQ(t.metadata().at("tokenizer.merges.txt"), contents(golden / "merges.txt"));
  EXPECT_EQ(nlohmann::json::parse(t.metadata().at("tokenizer.vocab.json")), nlohmann::json::parse(contents(golden / "vocab.json")));
  expect_round_trips(t);
  // From bytes that are no text it learns too.
  std::mt19937_64 random(2);
  std::string noise;
  for (int i = 0; i < 200; ++i) noise += any_bytes(random);
  const BpeTokenizer of_noise = BpeTokenizer::train(noise, {.vocab_size = 320, .special_tokens = {}});
  EXPECT_EQ(of_noise.vocab_size(), 320);
  EXPECT_LT(of_noise.encode(noise).size(), noise.size());
  expect_round_trips(of_noise);
}

TEST(Bpe, TakesLongPieces) {
  const std::string text(200000, 'a');
  const BpeTokenizer t = BpeTokenizer::train(text, {.vocab_size = 265, .special_tokens = {}});
  EXPECT_EQ(t.decode(t.encode(text)), text);
  EXPECT_EQ(t.encode(std::string(1024, 'a')).size(), 1024u / 512);
}

TEST(Bpe, StopsWhereNothingComesTwiceAndRefusesNonsense) {
  EXPECT_EQ(BpeTokenizer::train("abc", {.vocab_size = 300}).vocab_size(), 257);
  EXPECT_EQ(BpeTokenizer::train("", {.vocab_size = 300}).vocab_size(), 257);
  EXPECT_THROW(BpeTokenizer::train("abc", {.vocab_size = 256}), Error);
  EXPECT_THROW(BpeTokenizer::train("abc", {.special_tokens = {"<a>", "<a>"}}), Error);
  EXPECT_THROW(BpeTokenizer::train("abc", {.special_tokens = {"a"}}), Error);
  EXPECT_THROW(BpeTokenizer::train("abc", {.special_tokens = {""}}), Error);
}

TEST(Bpe, SavesWhatItLoads) {
  const test::TemporaryFolder temporary;
  const std::filesystem::path& folder = temporary.path();
  BpeTokenizer::load(golden).save(folder);
  EXPECT_EQ(BpeTokenizer::load(folder).metadata(), BpeTokenizer::load(golden).metadata());
  EXPECT_EQ(contents(folder / "vocab.json"), contents(golden / "vocab.json"));  // as json.dump writes it
  std::filesystem::remove_all(folder);
  const std::string absent = message_of<IoError>([&] { BpeTokenizer::load(folder); });
  EXPECT_NE(absent.find("vocab.json"), std::string::npos) << absent;
}

TEST(Bpe, RefusesBadFilesWithTheReason) {
  const std::string vocab = contents(golden / "vocab.json"), merges = contents(golden / "merges.txt");
  const auto refused = [](const std::string& v, const std::string& m) { return message_of<IoError>([&] { BpeTokenizer::parse("parse", v, m); }); };
  const auto expect = [&](const std::string& v, const std::string& m, const char* part) {
    const std::string text = refused(v, m);
    EXPECT_NE(text.find(part), std::string::npos) << part << ": " << text.substr(0, 200);
  };
  EXPECT_EQ(refused(vocab, merges), "");
  EXPECT_EQ(refused(vocab, ""), "");
  EXPECT_EQ(refused(vocab, "t h\r\n"), "");
  const auto edited = [&](const char* from, const char* to) {
    std::string out = vocab;
    const std::size_t at = out.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return out.replace(at, std::string_view(from).size(), to);
  };
  expect("", merges, "not JSON");
  expect("[1]", merges, "not an object");
  expect("3", merges, "not an object");
  expect(std::string(100000, '['), merges, "not an object");
  expect(vocab.substr(0, 1000), merges, "not JSON");
  expect(vocab + "x", merges, "not JSON");
  expect(vocab + std::string(1, '\0'), merges, "zero byte");
  expect("{}", merges, "the byte 0 has no token");
  expect(edited("\"!\": 0", "\"!\": 1"), merges, "are not 0 to");
  expect(edited("\"!\": 0", "\"!\": -1"), merges, "a negative number");
  expect(edited("\"!\": 0", "\"!\": 0.5"), merges, "not whole");
  expect(edited("\"!\": 0", "\"!\": {}"), merges, "an object");
  expect(edited("\"!\": 0", "\"!\": 99999999999999999999999"), merges, "too large");
  expect(edited("\"!\": 0", "\"\\\"\": 0"), merges, "twice");
  expect(edited("\"!\": 0", "\"!!\": 0"), merges, "the byte 33 has no token");
  expect(edited("\"!\": 0", "\"\\u4f60\": 0"), merges, "stands for no byte");
  expect(edited("\"!\": 0", "\"\\u00ad\": 0"), merges, "stands for no byte");
  expect(edited("\"!\": 0", "\"\": 0"), merges, "stands for no byte");
  expect(vocab, "#version: 0.2\nt h\nth\n", "line 3: not two tokens");
  expect(vocab, "t  h\n", "not two tokens");
  expect(vocab, "t h e\n", "not two tokens");
  expect(vocab, "t h\n\na n\n", "line 2");
  expect(vocab, "t h\na n\nt h\n", "line 3: a merge twice");
  expect(vocab, "t q\n", "into what is not in the vocabulary");
  expect(vocab, "qq q\n", "of what is not in the vocabulary");
  expect(vocab, "t \xE4\xBD\xA0\n", "stands for no byte");
  expect(vocab, "t \xFF\n", "stands for no byte");
}

}  // namespace
}  // namespace heed
