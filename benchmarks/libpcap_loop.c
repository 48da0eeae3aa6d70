/* The reference the decoder is measured against: a loop over libpcap that reads the headers whose fields are the
 * packets table's columns (Ethernet, VLAN, IPv4, IPv6, TCP with its timestamps option, UDP) and does nothing with
 * them but add them up, so that the compiler cannot leave them out. It numbers no flows and stores no columns.
 * Usage: libpcap_loop FILE REPEAT; prints seconds of wall and of processor time of each pass. */
#include <pcap/pcap.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint16_t be16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static uint32_t be32(const uint8_t *p) {
  uint32_t v;
  memcpy(&v, p, 4);
  return __builtin_bswap32(v);
}

static uint64_t sum;

static void packet(const struct pcap_pkthdr *h, const uint8_t *p) {
  const uint8_t *end = p + h->caplen;
  sum += (uint64_t)h->ts.tv_sec * 1000000000u + (uint64_t)h->ts.tv_usec + h->len;
  if (end - p < 14) return;
  uint16_t type = be16(p + 12);
  p += 14;
  while (type == 0x8100 && end - p >= 4) {
    type = be16(p + 2);
    p += 4;
  }
  uint32_t payload;
  uint8_t protocol;
  if (type == 0x0800 && end - p >= 20) {
    uint32_t header = (p[0] & 15u) * 4;
    payload = be16(p + 2) - header;
    sum += p[1] + p[8] + be32(p + 12) + be32(p + 16);
    if (be16(p + 6) & 0x1fff) return;
    protocol = p[9];
    p += header;
  } else if (type == 0x86dd && end - p >= 40) {
    payload = be16(p + 4);
    sum += (be16(p) >> 4 & 255) + p[7];
    for (int i = 8; i < 40; i += 4) sum += be32(p + i);
    protocol = p[6];
    p += 40;
    while ((protocol == 0 || protocol == 43 || protocol == 60) && end - p >= 8) {
      uint32_t step = (p[1] + 1u) * 8;
      protocol = p[0];
      payload -= step;
      p += step;
    }
  } else {
    return;
  }
  sum += protocol;
  if (protocol == 6 && end - p >= 20) {
    uint32_t header = (p[12] >> 4) * 4u;
    sum += be16(p) + be16(p + 2) + be32(p + 4) + be32(p + 8) + (be16(p + 12) & 0xfff) + be16(p + 14) + payload - header;
    const uint8_t *o = p + 20, *stop = p + header < end ? p + header : end;
    while (o < stop) {
      if (*o == 0) break;
      if (*o == 1) {
        o++;
        continue;
      }
      if (stop - o < 2 || o[1] < 2 || o[1] > stop - o) break;
      if (o[0] == 8 && o[1] == 10) sum += be32(o + 2) + be32(o + 6);
      o += o[1];
    }
  } else if (protocol == 17 && end - p >= 8) {
    sum += be16(p) + be16(p + 2) + be16(p + 4);
  }
}

static double seconds(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  for (int pass = atoi(argv[2]); pass > 0; pass--) {
    char error[PCAP_ERRBUF_SIZE];
    double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    pcap_t *file = pcap_open_offline_with_tstamp_precision(argv[1], PCAP_TSTAMP_PRECISION_NANO, error);
    if (!file) {
      fprintf(stderr, "%s\n", error);
      return 1;
    }
    struct pcap_pkthdr *header;
    const uint8_t *data;
    while (pcap_next_ex(file, &header, &data) == 1) packet(header, data);
    pcap_close(file);
    printf("%.6f %.6f\n", seconds(CLOCK_MONOTONIC) - wall, seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu);
  }
  fprintf(stderr, "%llu\n", (unsigned long long)sum);
  return 0;
}
