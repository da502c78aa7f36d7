# libjpeg-turbo, for the JPEGs that Stoker's own decoder declines. STOKER_TURBO says from where:
#   AUTO     what is installed, if it can be used; otherwise none, and those JPEGs go to Pillow
#   ON       what is installed; an error if it cannot be used
#   BUNDLED  built here from the sources of one release, known by their hash: what wheels have
#   OFF      none
# Sets STOKER_WITH_TURBO, STOKER_JPEG_INCLUDES and STOKER_JPEG_LIBRARIES.
#
# It is linked into our library, where there is an archive of it. A shared libjpeg would be looked for by its name among those that
# the process has loaded, and may be another with that name: torchvision brings a "libjpeg.so.8", and a program that imports it before
# Stoker would decode with that one. Some of them lack jpeg_crop_scanline, and the process ends where it is called.
set(STOKER_TURBO AUTO CACHE STRING "libjpeg-turbo, for progressive and arithmetic JPEGs: AUTO (where it is), ON, BUNDLED or OFF")
set_property(CACHE STOKER_TURBO PROPERTY STRINGS AUTO ON BUNDLED OFF)
string(TOUPPER "${STOKER_TURBO}" STOKER_TURBO_WANTED)
if(NOT STOKER_TURBO_WANTED MATCHES "^(AUTO|ON|BUNDLED|OFF)$")
  message(FATAL_ERROR "STOKER_TURBO is ${STOKER_TURBO}; it may be AUTO, ON, BUNDLED or OFF")
endif()

set(STOKER_WITH_TURBO OFF)

# ---- what is installed ---------------------------------------------------------------------------------------------------

# Compiled and linked again at each configuration: headers without their library, or a library replaced, must not stop a build.
function(stoker_try_jpeg library result)
  include(CheckCSourceCompiles)
  unset(STOKER_JPEG_LINKS CACHE)
  set(CMAKE_REQUIRED_INCLUDES ${JPEG_INCLUDE_DIRS})
  set(CMAKE_REQUIRED_LIBRARIES ${library})
  set(CMAKE_REQUIRED_FLAGS -fPIC)
  set(CMAKE_REQUIRED_LINK_OPTIONS ${ARGN})
  set(CMAKE_REQUIRED_QUIET ON)
  check_c_source_compiles("
    #include <stdio.h>
    #include <jpeglib.h>
    #ifndef LIBJPEG_TURBO_VERSION
    #error not libjpeg-turbo
    #endif
    int main(int count, char **words) {
      struct jpeg_decompress_struct jpeg;
      (void)words;
      if (count > 0) return 0;
      jpeg_create_decompress(&jpeg), jpeg_read_header(&jpeg, TRUE), jpeg_start_decompress(&jpeg);
      jpeg_crop_scanline(&jpeg, NULL, NULL), jpeg_skip_scanlines(&jpeg, 1), jpeg_read_scanlines(&jpeg, NULL, 1);
      return jpeg_resync_to_restart(&jpeg, 1);
    }" STOKER_JPEG_LINKS)
  set(${result} ${STOKER_JPEG_LINKS} PARENT_SCOPE)
endfunction()

if(STOKER_TURBO_WANTED STREQUAL "OFF")
  set(STOKER_TURBO_TOLD "left out, as STOKER_TURBO=OFF asks")
elseif(NOT STOKER_TURBO_WANTED STREQUAL "BUNDLED")
  find_package(JPEG QUIET)
  if(JPEG_FOUND)
    list(GET JPEG_LIBRARIES 0 STOKER_JPEG)
    get_filename_component(STOKER_JPEG_FOLDER "${STOKER_JPEG}" DIRECTORY)
    find_library(STOKER_JPEG_ARCHIVE libjpeg.a PATHS "${STOKER_JPEG_FOLDER}" NO_DEFAULT_PATH
                 DOC "libjpeg-turbo's archive; OFF takes the shared library")
    if(STOKER_JPEG_ARCHIVE)
      # It must be fit for a shared library; the objects of Debian's are where their names are not visible from outside.
      stoker_try_jpeg("${STOKER_JPEG_ARCHIVE}" STOKER_ARCHIVE_LINKS -shared -Wl,--exclude-libs,ALL)
    endif()
    if(STOKER_ARCHIVE_LINKS)
      set(JPEG_LIBRARIES "${STOKER_JPEG_ARCHIVE}")
      list(GET JPEG_LIBRARIES 0 STOKER_JPEG)
    endif()
    stoker_try_jpeg("${JPEG_LIBRARIES}" STOKER_WITH_TURBO)
    if(STOKER_WITH_TURBO)
      set(STOKER_TURBO_TOLD "${STOKER_JPEG}")
      set(STOKER_JPEG_INCLUDES ${JPEG_INCLUDE_DIRS})
      set(STOKER_JPEG_LIBRARIES ${JPEG_LIBRARIES})
    else()
      set(STOKER_TURBO_TOLD "${STOKER_JPEG} with the headers in ${JPEG_INCLUDE_DIRS} cannot be used, and is left alone")
    endif()
  else()
    set(STOKER_TURBO_TOLD "not found")
  endif()
endif()

if(STOKER_TURBO_WANTED STREQUAL "ON" AND NOT STOKER_WITH_TURBO)
  message(FATAL_ERROR "STOKER_TURBO is ON, but libjpeg-turbo: ${STOKER_TURBO_TOLD}. Install its development files:
  Debian, Ubuntu  apt-get install libjpeg62-turbo-dev   (Ubuntu: libjpeg-turbo8-dev)
  Fedora, RHEL    dnf install libjpeg-turbo-devel
  macOS           brew install jpeg-turbo   and pass -DCMAKE_PREFIX_PATH=$(brew --prefix jpeg-turbo)
or pass -DSTOKER_TURBO=BUNDLED, which builds it from source")
endif()

# ---- built here ----------------------------------------------------------------------------------------------------------

if(STOKER_TURBO_WANTED STREQUAL "BUNDLED")
  set(STOKER_TURBO_VERSION 3.1.3)
  set(STOKER_TURBO_SHA256 3a13a5ba767dc8264bc40b185e41368a80d5d5f945944d1dbaa4b2fb0099f4e5)
  set(STOKER_TURBO_URL "https://github.com/libjpeg-turbo/libjpeg-turbo/archive/refs/tags/${STOKER_TURBO_VERSION}.tar.gz")
  set(STOKER_TURBO_SOURCE "" CACHE FILEPATH "libjpeg-turbo's source as a file, for builds without network; its hash is checked too")
  if(STOKER_TURBO_SOURCE)
    get_filename_component(STOKER_TURBO_URLS "${STOKER_TURBO_SOURCE}" ABSOLUTE)
    if(NOT EXISTS "${STOKER_TURBO_URLS}" OR IS_DIRECTORY "${STOKER_TURBO_URLS}")
      message(FATAL_ERROR "STOKER_TURBO_SOURCE: there is no file ${STOKER_TURBO_URLS}; download ${STOKER_TURBO_URL}")
    endif()
  else()
    set(STOKER_TURBO_URLS "${STOKER_TURBO_URL}")
  endif()

  set(STOKER_TURBO_FOLDER "${CMAKE_BINARY_DIR}/libjpeg-turbo")
  set(STOKER_TURBO_ARCHIVE "${STOKER_TURBO_FOLDER}/build/libjpeg.a")
  # How we are compiled is how it is compiled: by the same compiler, for the same system and processor.
  set(STOKER_TURBO_ARGUMENTS)
  foreach(name C_COMPILER C_COMPILER_TARGET C_FLAGS AR RANLIB MAKE_PROGRAM TOOLCHAIN_FILE OSX_DEPLOYMENT_TARGET OSX_ARCHITECTURES
               OSX_SYSROOT ASM_NASM_COMPILER)
    if(CMAKE_${name})
      list(APPEND STOKER_TURBO_ARGUMENTS "-DCMAKE_${name}=${CMAKE_${name}}")
    endif()
  endforeach()
  if(CMAKE_CROSSCOMPILING)
    list(APPEND STOKER_TURBO_ARGUMENTS -DCMAKE_SYSTEM_NAME=${CMAKE_SYSTEM_NAME}
         -DCMAKE_SYSTEM_PROCESSOR=${CMAKE_SYSTEM_PROCESSOR})
  endif()

  if(POLICY CMP0135)
    cmake_policy(SET CMP0135 NEW) # what is unpacked is as new as the unpacking
  endif()
  include(ExternalProject)
  ExternalProject_Add(
    libjpeg_turbo
    URL ${STOKER_TURBO_URLS}
    URL_HASH SHA256=${STOKER_TURBO_SHA256}
    DOWNLOAD_NAME libjpeg-turbo-${STOKER_TURBO_VERSION}.tar.gz
    PREFIX "${STOKER_TURBO_FOLDER}"
    SOURCE_DIR "${STOKER_TURBO_FOLDER}/source"
    BINARY_DIR "${STOKER_TURBO_FOLDER}/build"
    CMAKE_ARGS ${STOKER_TURBO_ARGUMENTS}
               -DCMAKE_BUILD_TYPE=Release
               -DCMAKE_POSITION_INDEPENDENT_CODE=ON
               -DCMAKE_C_VISIBILITY_PRESET=hidden
               -DENABLE_SHARED=OFF
               -DREQUIRE_SIMD=ON # on x86-64 that takes NASM
               -DWITH_TURBOJPEG=OFF
               -DWITH_TOOLS=OFF
               -DWITH_TESTS=OFF
    BUILD_COMMAND "${CMAKE_COMMAND}" --build <BINARY_DIR> --target jpeg-static
    INSTALL_COMMAND ""
    BUILD_BYPRODUCTS "${STOKER_TURBO_ARCHIVE}")
  # The notes that wheels carry are those of the release they contain.
  foreach(name LICENSE.md README.ijg)
    ExternalProject_Add_Step(
      libjpeg_turbo licence-${name}
      COMMAND "${CMAKE_COMMAND}" -E compare_files "${CMAKE_SOURCE_DIR}/licenses/libjpeg-turbo/${name}" <SOURCE_DIR>/${name}
      DEPENDEES download
      DEPENDERS configure)
  endforeach()
  set(STOKER_WITH_TURBO ON)
  set(STOKER_TURBO_TOLD "${STOKER_TURBO_VERSION}, built from ${STOKER_TURBO_URLS}")
  set(STOKER_JPEG_INCLUDES "${STOKER_TURBO_FOLDER}/build" "${STOKER_TURBO_FOLDER}/source/src")
  set(STOKER_JPEG_LIBRARIES "${STOKER_TURBO_ARCHIVE}")

  # Where wheels say what is in them (PEP 770).
  if(SKBUILD_METADATA_DIR)
    configure_file(native/libjpeg_turbo.cdx.json.in libjpeg-turbo.cdx.json @ONLY)
    install(FILES "${CMAKE_BINARY_DIR}/libjpeg-turbo.cdx.json" DESTINATION "${SKBUILD_METADATA_DIR}/sboms")
  endif()
endif()
message(STATUS "libjpeg-turbo (optional): ${STOKER_TURBO_TOLD}")
