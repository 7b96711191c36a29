#!/bin/bash
# Lays the image's root out in the folder $1, from this Debian's own packages: git and its programs
# for http remotes with the libraries that they name, certificates, busybox as shell and tools.
# Every package that a file came from is recorded where scanners look, with its licence.
set -euo pipefail
shopt -s inherit_errexit
root=$1
mkdir -p "$root"
cd "$root"

programs=(/usr/bin/git /usr/lib/git-core/git-remote-http)
mapfile -t libraries < <(ldd "${programs[@]}" | sed -n 's,^.*[[:space:]]\(/lib[^ ]*\) (0x.*,\1,p' | sort -u)
certificates=/etc/ssl/certs/ca-certificates.crt
cp -L --parents "${programs[@]}" "${libraries[@]}" "$certificates" .
ln -s git-remote-http usr/lib/git-core/git-remote-https
# What git starts for the other side of a remote on this machine.
for side in upload-pack receive-pack upload-archive; do ln -s git "usr/bin/git-$side"; done

mkdir -p bin etc root usr/local/bin var/lib/dpkg/status.d
mkdir -m 1777 tmp
cp /bin/busybox bin/
/bin/busybox --list | while read -r applet; do
  [ -e "bin/$applet" ] || ln -s busybox "bin/$applet"
done
echo 'root:x:0:0:root:/root:/bin/sh' > etc/passwd
echo 'root:x:0:' > etc/group

# Debian's database knows some files with /usr and some without.
owner() {
  local real
  real=$(realpath "$1")
  dpkg-query -S "$real" 2>/dev/null || dpkg-query -S "${real#/usr}"
}
{
  for file in "${programs[@]}" "${libraries[@]}"; do owner "$file"; done
  echo "busybox-static: /bin/busybox"
  echo "ca-certificates: $certificates"
} | cut -d: -f1 | sort -u > /tmp/packages
while read -r package; do
  dpkg-query -s "$package" > "var/lib/dpkg/status.d/$package"
  cp -L --parents "/usr/share/doc/$package/copyright" .
done < /tmp/packages
