/* The simulator's dumbbell in ns-3: N CUBIC senders, one bottleneck with CoDel, N receivers; prints one line
 *   packets cpu_s wall_s goodput_mbps mean_delay_ms dropped_packets
 * of the run (set-up not counted). Usage: ns3_dumbbell RATE_MBPS RTT_MS BUFFER_PACKETS FLOWS DURATION_S */
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

/* A full packet is 1514 bytes in the scenario (Ethernet) and 1502 on ns-3's point-to-point link (PPP): the link is so
 * much slower that it takes as many packets a second. */
static const double kWireBytes = 1514, kPppBytes = 1502;
static const double kAccessMbps = 100000; /* senders and receivers have no queue of their own, as in the scenario */

static double cpu_s() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  return double(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + 1e-6 * double(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static double delay_sum_ms;
static uint64_t delays;

static void sojourn(Time t) {
  delay_sum_ms += t.GetSeconds() * 1e3;
  delays += 1;
}

static NetDeviceContainer link(Ptr<Node> a, Ptr<Node> b, double mbps, double delay_ms, uint32_t packets) {
  PointToPointHelper helper;
  helper.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(mbps * 1e6))));
  helper.SetChannelAttribute("Delay", TimeValue(MicroSeconds(int64_t(delay_ms * 1e3))));
  helper.SetQueue("ns3::DropTailQueue", "MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, packets)));
  return helper.Install(a, b);
}

int main(int argc, char **argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: ns3_dumbbell RATE_MBPS RTT_MS BUFFER_PACKETS FLOWS DURATION_S\n");
    return 2;
  }
  const double rate_mbps = std::atof(argv[1]), rtt_ms = std::atof(argv[2]), duration_s = std::atof(argv[5]);
  const uint32_t buffer = uint32_t(std::atol(argv[3])), flows = uint32_t(std::atol(argv[4]));

  /* as the scenario's senders and receivers */
  Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpCubic::GetTypeId()));
  Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
  Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
  Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
  Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(40)));
  Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(64 << 20));
  Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(64 << 20));
  Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));

  NodeContainer senders, receivers, routers;
  senders.Create(flows);
  receivers.Create(flows);
  routers.Create(2);
  InternetStackHelper stack;
  stack.InstallAll();

  /* the device holds the packet being sent and no other: the queue is CoDel's */
  NetDeviceContainer bottleneck =
      link(routers.Get(0), routers.Get(1), rate_mbps * kPppBytes / kWireBytes, rtt_ms / 2, 1);
  TrafficControlHelper codel;
  codel.SetRootQueueDisc("ns3::CoDelQueueDisc", "MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, buffer)),
                         "Target", StringValue("5ms"), "Interval", StringValue("100ms"));
  Ptr<QueueDisc> queue = codel.Install(bottleneck.Get(0)).Get(0);
  queue->TraceConnectWithoutContext("SojournTime", MakeCallback(&sojourn));
  TrafficControlHelper fifo; /* on the way back nothing waits */
  fifo.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", QueueSizeValue(QueueSize("1000000p")));
  fifo.Install(bottleneck.Get(1));

  Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
  addresses.Assign(bottleneck);
  TrafficControlHelper remover;
  ApplicationContainer sinks;
  for (uint32_t i = 0; i < flows; ++i) {
    const NetDeviceContainer left = link(senders.Get(i), routers.Get(0), kAccessMbps, 0, 1000000);
    const NetDeviceContainer right = link(routers.Get(1), receivers.Get(i), kAccessMbps, 0, 1000000);
    addresses.NewNetwork();
    addresses.Assign(left);
    addresses.NewNetwork();
    const Ipv4InterfaceContainer far = addresses.Assign(right);
    for (const NetDeviceContainer &both : {left, right}) remover.Uninstall(both);
    const InetSocketAddress to(far.GetAddress(1), 5000);
    PacketSinkHelper sink("ns3::TcpSocketFactory", to);
    sinks.Add(sink.Install(receivers.Get(i)));
    BulkSendHelper source("ns3::TcpSocketFactory", to);
    source.SetAttribute("SendSize", UintegerValue(1448));
    source.Install(senders.Get(i));
  }
  Ipv4GlobalRoutingHelper::PopulateRoutingTables();

  Simulator::Stop(Seconds(duration_s));
  const double before = cpu_s();
  const auto started = std::chrono::steady_clock::now();
  Simulator::Run();
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  const double cpu = cpu_s() - before;

  uint64_t received = 0;
  for (uint32_t i = 0; i < flows; ++i) received += DynamicCast<PacketSink>(sinks.Get(i))->GetTotalRx();
  const QueueDisc::Stats &stats = queue->GetStats();
  std::printf("%lu %.6f %.6f %.6f %.6f %lu\n", (unsigned long)stats.nTotalSentPackets, cpu, wall,
              double(received) * 8e-6 / duration_s, delays ? delay_sum_ms / double(delays) : 0.0,
              (unsigned long)stats.nTotalDroppedPackets);
  Simulator::Destroy();
  return 0;
}
