#pragma once

// Private: HEED_SANITIZED where this is compiled with a sanitizer that watches memory or threads, and HEED_ADDRESS_SANITIZER where it is that one.
// g++ tells by macros, clang by features.

#if defined(__SANITIZE_ADDRESS__)
#define HEED_ADDRESS_SANITIZER
#elif defined(__SANITIZE_THREAD__)
#define HEED_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HEED_ADDRESS_SANITIZER
#elif __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define HEED_SANITIZED
#endif
#endif

#ifdef HEED_ADDRESS_SANITIZER
#define HEED_SANITIZED
#endif
