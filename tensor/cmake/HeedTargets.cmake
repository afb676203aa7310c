# How every target of the project is compiled; nothing of this reaches the users of the library.

set(heed_sanitizers ${HEED_SANITIZE})
if(HEED_BUILD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "heed: the fuzzers need clang (-DCMAKE_CXX_COMPILER=clang++)")
  endif()
  list(APPEND heed_sanitizers fuzzer-no-link)
endif()
list(JOIN heed_sanitizers "," heed_sanitizers)

function(heed_target target)
  set_target_properties(${target} PROPERTIES CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wconversion $<$<BOOL:${HEED_WERROR}>:-Werror>)
  # Two warnings of g++ are wrong about its own library: of "literal" + std::string (https://gcc.gnu.org/bugzilla/show_bug.cgi?id=105651)
  # and of a checked std::optional (https://gcc.gnu.org/bugzilla/show_bug.cgi?id=80635). clang, in CI too, sees what is really uninitialized.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-restrict -Wno-maybe-uninitialized)
  endif()
  if(heed_sanitizers)
    # Public, so that whatever links the library links the sanitizer's run time too.
    target_compile_options(${target} PRIVATE -fsanitize=${heed_sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${heed_sanitizers})
  endif()
endfunction()
