# The target `docs`: a page of API reference made from the public headers, in docs/index.html of the build folder. A public name without a comment is an error.

find_package(Doxygen QUIET)
if(NOT Doxygen_FOUND)
  return()
endif()

# Seen as users see them, so that pages say #include <heed/nn/linear.h>. Formatters for fmt are specializations and have no names of their own.
set(documented ${public_headers})
list(REMOVE_ITEM documented nn/fmt.h tensor/format.h)
list(TRANSFORM documented REPLACE "^nn/(heed|gtest)\\.h$" "\\1.h")
list(TRANSFORM documented PREPEND ${PROJECT_BINARY_DIR}/include/heed/)

set(DOXYGEN_STRIP_FROM_PATH ${PROJECT_BINARY_DIR}/include)
set(DOXYGEN_STRIP_FROM_INC_PATH ${PROJECT_BINARY_DIR}/include)
set(DOXYGEN_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
set(DOXYGEN_HTML_OUTPUT docs)
set(DOXYGEN_EXCLUDE_SYMBOLS "heed::detail" "heed::detail::*" "heed::nn::detail" "heed::nn::detail::*")
set(DOXYGEN_INPUT_FILTER "sed s/^extern.template.*//")  # what is declared above is instantiated elsewhere
set(DOXYGEN_JAVADOC_AUTOBRIEF YES)
set(DOXYGEN_BUILTIN_STL_SUPPORT YES)
set(DOXYGEN_SORT_MEMBER_DOCS NO)
set(DOXYGEN_HIDE_UNDOC_RELATIONS YES)
set(DOXYGEN_HIDE_FRIEND_COMPOUNDS YES)
set(DOXYGEN_HAVE_DOT NO)
set(DOXYGEN_QUIET YES)
set(DOXYGEN_WARN_NO_PARAMDOC NO)
set(DOXYGEN_WARN_IF_UNDOCUMENTED YES)
set(DOXYGEN_WARN_AS_ERROR FAIL_ON_WARNINGS)
doxygen_add_docs(docs ${documented} COMMENT "API reference: ${PROJECT_BINARY_DIR}/docs/index.html")
