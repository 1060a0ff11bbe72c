# packages.sh -- for scripts to source: `need PACKAGE...` installs the packages that are missing (Debian, Ubuntu).
need() {
    missing=
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            missing="$missing $package"
    done
    [ -z "$missing" ] && return
    sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    echo "installing:$missing"
    $sudo apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
}

BUILD_PACKAGES="cmake make gcc libc6-dev pkg-config protobuf-c-compiler libprotobuf-c-dev
    libonnx-dev libdnnl-dev libxxhash-dev libjansson-dev zlib1g-dev libglpk-dev"
TEST_PACKAGES="check librandom123-dev clang libclang-rt-14-dev libomp-dev"
